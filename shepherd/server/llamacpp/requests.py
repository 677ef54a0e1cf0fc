"""Requests of llama.cpp's own API: lenient, unknown fields are ignored."""

from typing import Annotated, Any

from pydantic import AliasChoices, Field

from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid
from shepherd.server.generation import NO_TOKENS
from shepherd.server.llamacpp.lines import LineLimits
from shepherd.server.wire.fields import MAX_TOKENS
from shepherd.server.wire.sampling import DecodingFields, ranged
from shepherd.session import Infill

MAX_FILES = 1000
MAX_FIELDS = 64


class AnswerFields(DecodingFields):
    """How a prompt is continued, and what the answer tells."""

    model: Annotated[str | None, Field(description="The model's name.")] = None
    n_predict: Annotated[
        int | None,
        Field(
            validation_alias=AliasChoices("n_predict", "max_tokens", "max_completion_tokens"),
            description="Tokens to generate at most; none or negative: as many as fit; 0: none.",
        ),
    ] = None
    stream: Annotated[bool | None, Field(description="Answer in server-sent events.")] = None
    n_cmpl: Annotated[
        int | None,
        Field(
            ge=1,
            validation_alias=AliasChoices("n_cmpl", "n"),
            description="Answers to each prompt, at most `server.max_choices`.",
        ),
    ] = None
    n_probs: int | None = ranged(
        "logprobs", "Tell so many of the likeliest tokens at each place.", "n_probs", "logprobs"
    )
    return_tokens: Annotated[bool | None, Field(description="Tell the answer's tokens.")] = None
    response_fields: Annotated[
        list[str] | None,
        Field(max_length=MAX_FIELDS, description="The fields to send; `a/b` is nested."),
    ] = None
    return_progress: Annotated[
        bool | None, Field(description="A stream tells in `prompt_progress` how far the prompt is.")
    ] = None
    timings_per_token: Annotated[
        bool | None, Field(description="Each event of a stream has `timings`.")
    ] = None
    grammar: Annotated[
        str | None, Field(description="A grammar in llama.cpp's GBNF that the answer fits.")
    ] = None
    json_schema: Annotated[Any, Field(description="A JSON schema that the answer fits.")] = None
    n_indent: Annotated[
        int | None,
        Field(description="The answer ends before a line with fewer blanks at its beginning."),
    ] = None
    t_max_predict_ms: Annotated[
        int | None,
        Field(description="The answer ends at the first new line after so many milliseconds."),
    ] = None
    cache_prompt: Annotated[
        bool | None, Field(description="Accepted: the cache is used where it can be.")
    ] = None
    id_slot: Annotated[int | None, Field(description="Accepted: the scheduler chooses.")] = None

    def count(self, maximum: int) -> int:
        """The number of answers to each prompt; raises ApiError above `maximum`."""
        number = self.n_cmpl or 1
        if number > maximum:
            reason = f"must be at most {maximum} here (server.max_choices), got {number}"
            raise invalid("n_cmpl", reason)
        return number

    @property
    def lines(self) -> LineLimits:
        """The limits of the answer that hold at new lines."""
        return LineLimits(max(self.n_indent or 0, 0), max(self.t_max_predict_ms or 0, 0) / 1000)

    def token_limit(self, default: int) -> int:
        """How many tokens are generated, as `Exchange.max_tokens` has it."""
        if self.n_predict == 0:
            return NO_TOKENS
        limit = default if self.n_predict is None else self.n_predict
        return min(max(limit, 0), MAX_TOKENS)


class CompletionBody(AnswerFields):
    """The body of `POST /completion`."""

    prompt: Annotated[
        Any,
        Field(
            description="A text, tokens, both in one list, or a list of such prompts. Only models "
            "in this process take it."
        ),
    ]


class InfillFile(RequestModel):
    """A text that goes before the gap."""

    text: str
    filename: str = "tmp"


class InfillBody(AnswerFields):
    """The body of `POST /infill`."""

    input_prefix: Annotated[str, Field(description="The text before the gap.")]
    input_suffix: Annotated[str, Field(description="The text behind the gap.")]
    prompt: Annotated[str, Field(description="The beginning of what stands in the gap.")] = ""
    input_extra: Annotated[
        list[InfillFile], Field(max_length=MAX_FILES, description="Other files, with their names.")
    ] = Field(default_factory=list[InfillFile])

    def to_infill(self) -> Infill:
        """The gap."""
        files = tuple((file.filename, file.text) for file in self.input_extra)
        return Infill(self.input_prefix, self.input_suffix, self.prompt, files)


class TokenizeBody(RequestModel):
    """The body of `POST /tokenize`."""

    model: str | None = None
    content: Annotated[Any, Field(description="A text, or a list of texts and tokens.")] = ""
    add_special: Annotated[
        bool | None, Field(description="Begin with the model's token for that.")
    ] = None
    parse_special: Annotated[
        bool | None, Field(description="false: texts of control tokens are plain.")
    ] = None
    with_pieces: Annotated[bool | None, Field(description="Tell the text of each token.")] = None


class DetokenizeBody(RequestModel):
    """The body of `POST /detokenize`."""

    model: str | None = None
    tokens: Annotated[list[int], Field(description="The numbers of tokens.")] = Field(
        default_factory=list[int]
    )
