"""Requests of the Gemini API: lenient, unknown fields are ignored."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import pydantic
from pydantic.alias_generators import to_camel

from shepherd import images, messages, sampling
from shepherd.json_text import as_object
from shepherd.server.body import RequestModel
from shepherd.server.errors import unsupported
from shepherd.server.wire import embedding, fields
from shepherd.server.wire.content import arguments_object

_FOREIGN_PARTS = (
    "file_data",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)


class GeminiModel(RequestModel):
    """A request's object; its fields can be named in camel case and in snake case."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel)


def _image(value: object) -> images.Image | None:
    """The image of `inlineData`; raises ValueError for another kind of data."""
    if value is None:
        return None
    sent = as_object(value)
    kind, data = sent.get("mimeType", sent.get("mime_type", "")), sent.get("data")
    if not isinstance(kind, str) or not isinstance(data, str):
        raise ValueError("needs mimeType and data, both strings")
    if kind and not kind.lower().startswith("image/"):
        raise ValueError(f"data of type {kind[:80]!r} is not supported; send text and images only")
    return images.decode_image(data.translate(_STANDARD_BASE64))


_STANDARD_BASE64 = str.maketrans("-_", "+/")
"""The alphabet of base64 for URLs is accepted too."""

InlineImage = Annotated[images.Image | None, pydantic.PlainValidator(_image)]


class DataPart(GeminiModel):
    """A part that can be data; parts of kinds that are not served are refused by their names."""

    inline_data: InlineImage = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_foreign(cls, value: object) -> object:
        """The part, a plain string as one of text; raises ValueError for a kind not served."""
        if isinstance(value, str):
            return {"text": value}
        sent = as_object(value)
        for name in _FOREIGN_PARTS:
            for key in (name, to_camel(name)):
                if sent.get(key) is not None:
                    raise ValueError(f"{key} is not supported; send text and images only")
        return value


class FunctionCall(GeminiModel):
    """A call in the history."""

    id: str | None = None
    name: Annotated[str, pydantic.Field(min_length=1)]
    args: Annotated[messages.JsonObject, pydantic.BeforeValidator(arguments_object)] = (
        pydantic.Field(default_factory=dict[str, Any])
    )


class FunctionResponse(GeminiModel):
    """The result of a call; images come in `parts`."""

    id: str | None = None
    name: str | None = None
    response: Any = None
    parts: fields.ListOrNull[DataPart] = pydantic.Field(default_factory=list[DataPart])


class Part(DataPart):
    """A part of a content: text, an image, a call or a result."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None


def _parts(value: object) -> object:
    """Parts as a list; null is none, and a part may stand alone."""
    if value is None:
        return []
    return cast(object, value) if isinstance(value, list) else [value]


Parts: TypeAlias = Annotated[
    list[Part], pydantic.Field(fail_fast=True), pydantic.BeforeValidator(_parts)
]


class Content(GeminiModel):
    """A turn of the conversation; it is the user's unless it has a role."""

    role: Literal["user", "model", "function", "tool"] | None = None
    parts: Parts = pydantic.Field(default_factory=list[Part])


def as_content(value: object) -> object:
    """A string, a list of parts or a part alone as a content; null stays null."""
    sent = as_object(value)
    is_content = "parts" in sent or "role" in sent
    return value if is_content or value is None else {"parts": value}


class Instructions(GeminiModel):
    """The system instruction: a content of texts, whose role does not matter."""

    parts: Parts = pydantic.Field(default_factory=list[Part])

    @property
    def text(self) -> str:
        """The texts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if part.text)


def _texts_only(value: Instructions | None) -> Instructions | None:
    """The instructions; raises ValueError for images, calls and results among them."""
    for part in value.parts if value else ():
        if part.inline_data or part.function_call or part.function_response:
            raise ValueError("takes texts only")
    return value


SystemInstruction = Annotated[
    Instructions | None, pydantic.BeforeValidator(as_content), pydantic.AfterValidator(_texts_only)
]

MAX_CONTENTS = 10_000


def _contents(value: object) -> object:
    """Contents as a list, counted before each is looked at; one may stand alone."""
    if not isinstance(value, list):
        return [as_content(value)]
    items = cast(list[object], value)
    if len(items) > MAX_CONTENTS:
        raise ValueError(f"must be at most {MAX_CONTENTS:,} contents")
    return items


Contents = Annotated[
    list[Content], pydantic.Field(min_length=1, fail_fast=True), pydantic.BeforeValidator(_contents)
]


def images_of(parts: Sequence[DataPart]) -> tuple[images.Image, ...]:
    """The images of parts, in their order."""
    return tuple(part.inline_data for part in parts if part.inline_data is not None)


def _filled(value: object) -> object:
    """A list without empty strings; null is an empty one."""
    return fields.without_empty(fields.list_or_empty(value))


Word: TypeAlias = Annotated[str, pydantic.StringConstraints(to_upper=True)] | None


class ThinkingConfig(GeminiModel):
    """Whether the model reasons, and whether the answer shows it."""

    include_thoughts: bool | None = None
    thinking_budget: Annotated[int | None, pydantic.Field(ge=-1), fields.NUMBER] = None
    thinking_level: Word = None


class GenerationConfig(GeminiModel, fields.OwnControls):
    """`generationConfig`: how the answer is generated; the settings hold for missing fields."""

    temperature: Annotated[float | None, fields.in_range("temperature"), fields.NUMBER] = None
    """Randomness; 0: the likeliest token."""
    top_p: Annotated[float | None, fields.in_range("top_p"), fields.NUMBER] = None
    """Keep the likeliest tokens up to this probability."""
    top_k: Annotated[int | None, fields.in_range("top_k"), fields.NUMBER] = None
    """Keep the K likeliest tokens; 0: all."""
    presence_penalty: Annotated[float | None, fields.in_range("penalty_present"), fields.NUMBER] = (
        None
    )
    """Presence penalty; 0: off."""
    frequency_penalty: Annotated[float | None, fields.in_range("penalty_freq"), fields.NUMBER] = (
        None
    )
    """Frequency penalty; 0: off."""
    seed: Annotated[int | None, fields.NUMBER] = None
    max_output_tokens: Annotated[int | None, pydantic.Field(ge=1), fields.NUMBER] = None
    stop_sequences: Annotated[
        list[str],
        pydantic.Field(max_length=sampling.MAX_STOP_STRINGS),
        pydantic.BeforeValidator(_filled),
    ] = pydantic.Field(default_factory=list[str])
    candidate_count: Annotated[int | None, pydantic.Field(ge=1), fields.NUMBER] = None
    response_logprobs: bool | None = None
    logprobs: Annotated[int | None, fields.in_range("logprobs"), fields.NUMBER] = None
    """Tell so many of the likeliest tokens too."""
    response_mime_type: str | None = None
    response_schema: messages.JsonObject | None = None
    response_json_schema: Annotated[
        messages.JsonObject | None,
        pydantic.Field(
            validation_alias=pydantic.AliasChoices(
                "responseJsonSchema", "response_json_schema", "_responseJsonSchema"
            )
        ),
    ] = None
    thinking_config: ThinkingConfig | None = None
    response_modalities: Annotated[list[Word], pydantic.BeforeValidator(_filled)] = pydantic.Field(
        default_factory=list[Word]
    )
    speech_config: Any = None
    image_config: Any = None


class FunctionDeclaration(GeminiModel):
    """A function on offer; one of two fields has the schema of its arguments."""

    name: Annotated[str, pydantic.Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: messages.JsonObject | None = None
    parameters_json_schema: messages.JsonObject | None = None


_FUNCTIONS = "function_declarations"


class Tool(GeminiModel):
    """Functions on offer; tools that Google runs have other fields."""

    function_declarations: Annotated[
        list[FunctionDeclaration],
        pydantic.Field(max_length=fields.MAX_TOOLS, fail_fast=True),
        pydantic.BeforeValidator(_filled),
    ] = pydantic.Field(default_factory=list[FunctionDeclaration])
    google_search: Any = None
    google_search_retrieval: Any = None
    google_maps: Any = None
    code_execution: Any = None
    url_context: Any = None
    file_search: Any = None
    computer_use: Any = None
    mcp_servers: Any = None
    retrieval: Any = None
    enterprise_web_search: Any = None

    def left_out(self) -> list[str]:
        """The names of its tools that Google runs."""
        fields = type(self).model_fields.items()
        others = ((name, str(field.alias)) for name, field in fields if name != _FUNCTIONS)
        return [alias for name, alias in others if getattr(self, name) is not None]


class FunctionCallingConfig(GeminiModel):
    """Whether the model calls functions, and which."""

    mode: Word = None
    allowed_function_names: Annotated[list[str], pydantic.BeforeValidator(_filled)] = (
        pydantic.Field(default_factory=list[str])
    )


class ToolConfig(GeminiModel):
    """`toolConfig`."""

    function_calling_config: FunctionCallingConfig | None = None


Tools: TypeAlias = Annotated[
    list[Tool],
    pydantic.Field(max_length=fields.MAX_TOOLS, fail_fast=True),
    pydantic.BeforeValidator(_filled),
]


class GenerateRequest(GeminiModel, fields.OwnControls):
    """The body of `:generateContent` and `:streamGenerateContent`."""

    contents: Contents
    """The conversation; images are `inlineData`, and files are refused."""
    system_instruction: SystemInstruction = None
    """Instructions to the model: a content of texts."""
    tools: Tools = pydantic.Field(default_factory=list[Tool])
    """`functionDeclarations`, with `parameters` or `parametersJsonSchema`. Tools that Google runs
    are left out, and a header of the answer names them.
    """
    tool_config: ToolConfig | None = None
    """`functionCallingConfig`: its mode `AUTO` and `VALIDATED` leave it to the model, `ANY` demands
    calls, `NONE` offers no functions.
    """
    generation_config: GenerationConfig | None = None
    """`temperature`, `topP`, `topK`, `maxOutputTokens`, `stopSequences`, `candidateCount`, `seed`,
    `presencePenalty`, `frequencyPenalty`, `responseMimeType`, `responseSchema`,
    `responseJsonSchema`, `thinkingConfig`, `responseLogprobs`, `logprobs`.
    """
    cached_content: Any = None
    """Not served; the server finds equal beginnings by itself."""
    continuation_token: Any = None
    """Not served."""

    @property
    def generation(self) -> GenerationConfig:
        """The generation config, an empty one if the request has none."""
        return self.generation_config or GenerationConfig()


class CountRequest(GeminiModel):
    """The body of `:countTokens`: the parts of a prompt, or a whole request."""

    contents: Contents | None = None
    """The conversation, without a whole request."""
    generate_content_request: GenerateRequest | None = None
    """A whole request, in place of the contents."""
    system_instruction: SystemInstruction = None
    """Instructions beside the contents."""
    tools: Tools = pydantic.Field(default_factory=list[Tool])
    """Functions on offer beside the contents."""


_TASK_ADVICE = "Write the instruction into the text, as the model's card says."
_UNSUPPORTED = ("taskType", "task_type", "title")
_OFF = (None, "", "TASK_TYPE_UNSPECIFIED")


class EmbedContentBody(GeminiModel):
    """The body of `POST /v1beta/models/{model}:embedContent`."""

    model: str | None = None
    content: Annotated[Instructions, pydantic.BeforeValidator(as_content)]
    """The text; nothing else."""
    output_dimensionality: Annotated[
        int | None, pydantic.Field(ge=0, le=embedding.MAX_DIMENSIONS, strict=True)
    ] = None
    """Numbers of the vector."""
    auto_truncate: bool | None = None
    """true: a text that is too long loses its end."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_unserved(cls, value: object) -> object:
        """Refuse fields that would change the vector and are not served."""
        sent = as_object(value)
        for name in _UNSUPPORTED:
            if sent.get(name) not in _OFF:
                raise unsupported(name, f"{name} is not supported. {_TASK_ADVICE}")
        return value

    def text(self) -> str:
        """The text; raises ApiError for a content without one, and for other parts."""
        texts = [part.text for part in self.content.parts if part.text is not None]
        if not texts or len(texts) < len(self.content.parts):
            raise unsupported("content", "content: must have parts of text, and no others")
        return "".join(texts)


class BatchEmbedBody(GeminiModel):
    """The body of `POST /v1beta/models/{model}:batchEmbedContents`."""

    requests: Annotated[
        list[EmbedContentBody], pydantic.Field(max_length=embedding.MAX_INPUTS, fail_fast=True)
    ]
    """A request for each text, all of the same model and size."""
