"""The exchanges of requests with raw prompts, which two APIs answer in their own shapes."""

from collections.abc import Sequence
from dataclasses import replace

from shepherd.backends.base import ModelInfo
from shepherd.server.errors import unsupported
from shepherd.server.exchange import Exchange
from shepherd.server.raw.llamacpp_answers import LlamaCompletion
from shepherd.server.raw.openai_answers import OpenAiCompletion
from shepherd.server.raw.requests import (
    CompletionBody,
    CompletionRequest,
    InfillBody,
    LlamaRequest,
    raw_token_limit,
)
from shepherd.server.settings import ServerSettings
from shepherd.server.wire.answers import fingerprint
from shepherd.server.wire.prompts import check_images, check_raw, spread
from shepherd.server.wire.translation import choice_count
from shepherd.session import Infill, RawPrompt, Session


def completion_exchange(
    body: CompletionRequest, settings: ServerSettings, model: ModelInfo
) -> Exchange:
    """The exchange of a request to OpenAI's API; raises ApiError."""
    check_raw(model)
    if body.echo and body.suffix and body.logprobs is not None:
        message = "logprobs: log probabilities beside a gap are not computed; leave out echo"
        raise unsupported("logprobs", message)
    ranks = (body.best_of or 1) > (body.n or 1)
    session = body.session((body.logprobs or 0) if ranks else body.logprobs)
    prompts, candidates = body.prompts, body.candidates(settings.max_choices)
    answer = OpenAiCompletion(
        model=body.model or model.id,
        fingerprint=fingerprint(model),
        count=body.n or 1,
        candidates=candidates,
        echoes=[_text(prompt) for prompt in prompts] if body.echo else (),
        logprobs=body.logprobs is not None,
        stream_usage=bool(body.stream_options and body.stream_options.include_usage),
    )
    limit = raw_token_limit(body.max_tokens, settings.max_tokens)
    return _exchange(prompts, model, session, answer, candidates, limit)


def prompt_exchange(body: CompletionBody, settings: ServerSettings, model: ModelInfo) -> Exchange:
    """The exchange of a request to llama.cpp's `/completion`; raises ApiError."""
    check_raw(model)
    prompts = body.prompts
    return _llama_exchange(body, settings, model, prompts.prompts, many=prompts.many)


def infill_exchange(body: InfillBody, settings: ServerSettings, model: ModelInfo) -> Exchange:
    """The exchange of a request to llama.cpp's `/infill`; raises ApiError."""
    check_raw(model, "input_prefix")
    return _llama_exchange(body, settings, model, [body.infill])


def _llama_exchange(
    body: LlamaRequest,
    settings: ServerSettings,
    model: ModelInfo,
    prompts: Sequence[RawPrompt | Infill],
    *,
    many: bool = False,
) -> Exchange:
    count = choice_count(body.n_cmpl, settings.max_choices, "n_cmpl")
    limit = raw_token_limit(body.n_predict, settings.max_tokens)
    answer = LlamaCompletion(
        model=body.model or model.id,
        max_tokens=limit,
        many=many or count > 1,
        stream=bool(body.stream),
        probabilities=bool(body.n_probs),
        return_tokens=bool(body.return_tokens),
        all_timings=bool(body.timings_per_token),
        fields=body.response_fields or (),
    )
    session = body.session(body.n_probs or None)
    return replace(
        _exchange(prompts, model, session, answer, count, limit),
        progress=answer.progress if body.stream and body.return_progress else None,
        limited=body.lines.limited if body.lines else None,
    )


def _exchange(
    prompts: Sequence[RawPrompt | Infill],
    model: ModelInfo,
    session: Session,
    answer: OpenAiCompletion | LlamaCompletion,
    count: int,
    limit: int,
) -> Exchange:
    """`count` answers to each prompt, each of at most `limit` tokens."""
    check_images(model, prompts)
    first, later = spread(prompts, session, count)
    return Exchange(first, answer, count, limit, later=later)


def _text(prompt: RawPrompt | Infill) -> str | None:
    """The text of a prompt, None if it has tokens."""
    if isinstance(prompt, Infill):
        return prompt.prefix
    texts = [part for part in prompt.parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(prompt.parts) else None
