"""Requests of the completions API: lenient, unknown fields are ignored."""

from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import AliasChoices, Field, model_validator

from shepherd.backends.base import ModelInfo
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid, unsupported
from shepherd.server.generation import NO_TOKENS
from shepherd.server.wire.fields import MAX_TOKENS, ModelName
from shepherd.server.wire.prompts import check_raw, prompts_of
from shepherd.server.wire.sampling import DecodingFields, ranged
from shepherd.server.wire.translation import plain_format
from shepherd.server.wire.unsupported import refuse_unsupported
from shepherd.session import Infill, RawPrompt, Session

_ELSEWHERE = {
    "response_format": "Use json_schema or grammar.",
    "messages": "Use /v1/chat/completions.",
    "tools": "Use /v1/chat/completions.",
}


class StreamOptions(RequestModel):
    """Extra parts of a stream."""

    include_usage: bool | None = None


class CompletionRequest(DecodingFields):
    """The body of `POST /v1/completions`."""

    model: ModelName = None
    prompt: Annotated[
        Any,
        Field(
            description="A text, a list of tokens, or a list of either. Only models in this "
            "process take it."
        ),
    ]
    suffix: Annotated[
        str | None,
        Field(description="The text behind the gap, for models with tokens for that."),
    ] = None
    max_tokens: Annotated[
        int | None,
        Field(
            ge=-1,
            validation_alias=AliasChoices("max_tokens", "n_predict"),
            description="Tokens to generate at most; none or -1: as many as fit; 0: none.",
        ),
    ] = None
    echo: Annotated[
        bool | None,
        Field(description="The text begins with the prompt, whose tokens `logprobs` has too."),
    ] = None
    logprobs: int | None = ranged(
        "logprobs", "Tell the log probabilities of the tokens, and of so many likeliest ones."
    )
    n: Annotated[
        int | None,
        Field(ge=1, description="Answers to each prompt, at most `server.max_choices`."),
    ] = None
    best_of: Annotated[
        int | None,
        Field(ge=1, description="Generate so many answers and keep the `n` most likely ones."),
    ] = None
    stream: Annotated[bool | None, Field(description="Answer in server-sent events.")] = None
    stream_options: Annotated[
        StreamOptions | None,
        Field(description="`include_usage`: a stream ends with a chunk that has the usage."),
    ] = None
    grammar: Annotated[
        str | None, Field(description="A grammar in llama.cpp's GBNF that the answer fits.")
    ] = None
    json_schema: Annotated[Any, Field(description="A JSON schema that the answer fits.")] = None

    @model_validator(mode="before")
    @classmethod
    def _not_chat(cls, value: Any) -> object:
        if isinstance(value, dict):
            refuse_unsupported(cast(dict[str, Any], value), _ELSEWHERE)
        return cast(object, value)

    def candidates(self, maximum: int) -> int:
        """How many answers are generated to each prompt; raises ApiError above `maximum`."""
        count, best = self.n or 1, self.best_of or self.n or 1
        for name, number in (("n", count), ("best_of", best)):
            if number > maximum:
                reason = f"must be at most {maximum} here (server.max_choices), got {number}"
                raise invalid(name, reason)
        if best < count:
            raise invalid("best_of", "must not be less than n")
        if best > count and self.stream:
            raise invalid("best_of", "can't be streamed: answers are compared at their end")
        return best

    def token_limit(self, default: int) -> int:
        """How many tokens are generated, as `Exchange.max_tokens` has it."""
        if self.max_tokens == 0:
            return NO_TOKENS
        limit = default if self.max_tokens is None else self.max_tokens
        return min(max(limit, 0), MAX_TOKENS)


def prompts_in(request: CompletionRequest) -> list[RawPrompt | Infill]:
    """The prompts, each with its suffix if there is one; raises ApiError."""
    prompts = prompts_of(request.prompt).prompts
    if not request.suffix:
        measured = bool(request.echo) and request.logprobs is not None
        return [replace(prompt, measured=measured) for prompt in prompts]
    parts = (part for prompt in prompts for part in (*prompt.parts, *prompt.images))
    if not all(isinstance(part, str) for part in parts):
        raise invalid("suffix", "goes with prompts of text only")
    return [Infill("".join(map(str, prompt.parts)), request.suffix) for prompt in prompts]


def session_from_request(request: CompletionRequest, model: ModelInfo) -> Session:
    """A session without its prompt; raises ApiError for what can't be served."""
    check_raw(model)
    if request.echo and request.suffix and request.logprobs is not None:
        message = "logprobs: log probabilities beside a gap are not computed; leave out echo"
        raise unsupported("logprobs", message)
    sampling = request.to_sampling()
    ranks = (request.best_of or 1) > (request.n or 1)
    if request.logprobs is not None or ranks:
        sampling = replace(sampling, logprobs=request.logprobs or 0)
    return Session(
        sampling=sampling, output_format=plain_format(request.grammar, request.json_schema)
    )
