"""Requests with raw prompts: lenient, unknown fields are ignored."""

from typing import Annotated, Any, ClassVar

from msgspec.structs import replace
from pydantic import AliasChoices, Field

from shepherd.server import errors, generation
from shepherd.server.body import RequestModel
from shepherd.server.raw.lines import LineLimits
from shepherd.server.wire import content, fields, sampling
from shepherd.session import Infill, RawPrompt, Session

MAX_FILES = 1000
MAX_FIELDS = 64


class RawRequest(sampling.DecodingFields, fields.GrammarFields):
    """How a prompt is continued, in the fields that both APIs have."""

    model: fields.ModelName = None
    stream: fields.Events = None

    def session(self, logprobs: int | None) -> Session:
        """A session without its prompt; raises ApiError for fields that exclude each other."""
        return Session(
            sampling=replace(self.to_sampling(), logprobs=logprobs),
            output_format=self.plain_format(),
        )


def raw_token_limit(requested: int | None, default: int) -> int:
    """The tokens to generate, as `Exchange.max_tokens` has it; a request of 0 is for none."""
    return generation.NO_TOKENS if requested == 0 else fields.token_limit(requested, default)


class CompletionRequest(RawRequest):
    """The body of `POST /v1/completions`."""

    refused: ClassVar = {
        "response_format": "Use json_schema or grammar.",
        "messages": "Use /v1/chat/completions.",
        "tools": "Use /v1/chat/completions.",
    }

    prompt: Any
    """A text, a list of tokens, or a list of either. Only models in this process take it."""
    suffix: str | None = None
    """The text behind the gap, for models with tokens for that."""
    max_tokens: Annotated[
        int | None, Field(ge=-1, validation_alias=AliasChoices("max_tokens", "n_predict"))
    ] = None
    """Tokens to generate at most; none or -1: as many as fit; 0: none."""
    echo: bool | None = None
    """The text begins with the prompt, whose tokens `logprobs` has too."""
    logprobs: Annotated[int | None, fields.in_range("logprobs")] = None
    """Tell the log probabilities of the tokens, and of so many likeliest ones."""
    n: Annotated[int | None, Field(ge=1)] = None
    """Answers to each prompt, at most `server.max_choices`."""
    best_of: Annotated[int | None, Field(ge=1)] = None
    """Generate so many answers and keep the `n` most likely ones."""
    stream_options: fields.StreamOptions | None = None
    """`include_usage`: a stream ends with a chunk that has the usage."""

    def candidates(self, maximum: int) -> int:
        """How many answers are generated to each prompt; raises ApiError above `maximum`."""
        kept = fields.choice_count(self.n, maximum, "n")
        generated = fields.choice_count(self.best_of or kept, maximum, "best_of")
        if generated < kept:
            raise errors.invalid("best_of", "must not be less than n")
        if generated > kept and self.stream:
            raise errors.invalid("best_of", "can't be streamed: answers are compared at their end")
        return generated

    @property
    def prompts(self) -> list[RawPrompt | Infill]:
        """The prompts, each with its suffix if there is one; raises ApiError."""
        prompts = content.prompts_of(self.prompt).prompts
        if not self.suffix:
            # with both, the answer has the log probabilities of the prompt's tokens too
            measured = bool(self.echo) and self.logprobs is not None
            return [replace(prompt, measured=measured) for prompt in prompts]
        parts = (part for prompt in prompts for part in (*prompt.parts, *prompt.images))
        if not all(isinstance(part, str) for part in parts):
            raise errors.invalid("suffix", "goes with prompts of text only")
        return [Infill("".join(map(str, prompt.parts)), self.suffix) for prompt in prompts]


class LlamaRequest(RawRequest, fields.TelemetryFields, fields.SlotField):
    """How llama.cpp's API continues a prompt, and what the answer tells."""

    n_predict: Annotated[
        int | None,
        Field(validation_alias=AliasChoices("n_predict", "max_tokens", "max_completion_tokens")),
    ] = None
    """Tokens to generate at most; none or negative: as many as fit; 0: none."""
    n_cmpl: Annotated[int | None, Field(ge=1, validation_alias=AliasChoices("n_cmpl", "n"))] = None
    """Answers to each prompt, at most `server.max_choices`."""
    n_probs: Annotated[
        int | None,
        fields.in_range("logprobs"),
        Field(validation_alias=AliasChoices("n_probs", "logprobs")),
    ] = None
    """Tell so many of the likeliest tokens at each place."""
    post_sampling_probs: bool | None = None
    """Their probabilities are those after the samplers."""
    return_tokens: bool | None = None
    """Tell the answer's tokens."""
    response_fields: Annotated[list[str] | None, Field(max_length=MAX_FIELDS)] = None
    """The fields to send; `a/b` is nested."""
    n_indent: int | None = None
    """The answer ends before a line with fewer blanks at its beginning."""
    t_max_predict_ms: int | None = None
    """The answer ends at the first new line after so many milliseconds."""
    cache_prompt: bool | None = None
    """Accepted: the cache is used where it can be."""

    @property
    def lines(self) -> LineLimits:
        """The limits of the answer that hold at new lines; a negative one is none."""
        milliseconds = max(self.t_max_predict_ms or 0, 0)
        return LineLimits(indent=max(self.n_indent or 0, 0), seconds=milliseconds / 1000)


class CompletionBody(LlamaRequest):
    """The body of `POST /completion`."""

    prompt: Any
    """A text, tokens, both in one list, or a list of such prompts. Only models in this process take
    it.
    """


class InfillFile(RequestModel):
    """A text that goes before the gap."""

    text: str
    filename: str = "tmp"


class InfillBody(LlamaRequest):
    """The body of `POST /infill`."""

    input_prefix: str
    """The text before the gap."""
    input_suffix: str
    """The text behind the gap."""
    prompt: str = ""
    """The beginning of what stands in the gap."""
    input_extra: Annotated[list[InfillFile], Field(max_length=MAX_FILES)] = Field(
        default_factory=list[InfillFile]
    )
    """Other files, with their names."""

    @property
    def infill(self) -> Infill:
        """The gap."""
        files = tuple((file.filename, file.text) for file in self.input_extra)
        return Infill(self.input_prefix, self.input_suffix, self.prompt, files)
