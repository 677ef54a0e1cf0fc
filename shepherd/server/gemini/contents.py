"""The contents of a Gemini request: turns of user and model, which consist of parts."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from shepherd.errors import ImageError
from shepherd.images import Image, decode_image
from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.wire.content import arguments_object

_FOREIGN_PARTS = (
    "file_data",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)
_ROLES = Literal["user", "model", "function", "tool"]


class GeminiModel(RequestModel):
    """A request's object; its fields can be named in camel case and in snake case."""

    model_config = ConfigDict(alias_generator=to_camel)


def _image(value: object) -> Image | None:
    """The image of `inlineData`; raises ValueError for another kind of data."""
    if value is None:
        return None
    fields = cast(JsonObject, value) if isinstance(value, dict) else {}
    kind, data = fields.get("mimeType", fields.get("mime_type", "")), fields.get("data")
    if not isinstance(kind, str) or not isinstance(data, str):
        raise ValueError("needs mimeType and data, both strings")
    if kind and not kind.lower().startswith("image/"):
        raise ValueError(f"data of type {kind[:80]!r} is not supported; send text and images only")
    try:
        return decode_image(data.translate(_STANDARD_BASE64))
    except ImageError as error:
        raise ValueError(str(error)) from error


_STANDARD_BASE64 = str.maketrans("-_", "+/")

InlineImage = Annotated[Image | None, PlainValidator(_image)]


def _list_or_empty(value: object) -> object:
    return [] if value is None else value


class DataPart(GeminiModel):
    """A part that can be data; parts of kinds that are not served are refused by their names."""

    inline_data: InlineImage = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        if isinstance(value, str):
            return {"text": value}
        if isinstance(value, dict):
            for name in _FOREIGN_PARTS:
                for key in (name, to_camel(name)):
                    if cast(JsonObject, value).get(key) is not None:
                        raise ValueError(f"{key} is not supported; send text and images only")
        return cast(object, value)


class FunctionCall(GeminiModel):
    """A call in the history."""

    id: str | None = None
    name: Annotated[str, Field(min_length=1)]
    args: Annotated[JsonObject, BeforeValidator(arguments_object)] = Field(
        default_factory=dict[str, Any]
    )


class FunctionResponse(GeminiModel):
    """The result of a call; images come in `parts`."""

    id: str | None = None
    name: str | None = None
    response: Any = None
    parts: Annotated[list[DataPart], BeforeValidator(_list_or_empty)] = Field(
        default_factory=list[DataPart]
    )


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


class Content(GeminiModel):
    """A turn of the conversation; it is the user's unless it has a role."""

    role: _ROLES | None = None
    parts: Annotated[list[Part], Field(fail_fast=True), BeforeValidator(_parts)] = Field(
        default_factory=list[Part]
    )


def as_content(value: object) -> object:
    """A string, a list of parts or a part alone as a content."""
    if isinstance(value, dict) and not {"parts", "role"}.isdisjoint(cast(JsonObject, value)):
        return cast(object, value)
    return None if value is None else {"parts": cast(object, value)}


class Instructions(GeminiModel):
    """The system instruction: a content of texts, whose role does not matter."""

    parts: Annotated[list[Part], Field(fail_fast=True), BeforeValidator(_parts)] = Field(
        default_factory=list[Part]
    )

    @property
    def text(self) -> str:
        """The texts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if part.text)


def _texts_only(value: Instructions | None) -> Instructions | None:
    for part in value.parts if value else ():
        if part.inline_data or part.function_call or part.function_response:
            raise ValueError("takes texts only")
    return value


SystemInstruction = Annotated[
    Instructions | None, BeforeValidator(as_content), AfterValidator(_texts_only)
]

MAX_CONTENTS = 10_000


def _contents(value: object) -> object:
    """Contents as a list, counted before each is looked at; one may stand alone."""
    if isinstance(value, list):
        if len(items := cast(list[object], value)) > MAX_CONTENTS:
            raise ValueError(f"must be at most {MAX_CONTENTS:,} contents")
        return items
    return [as_content(value)]


Contents = Annotated[list[Content], Field(min_length=1, fail_fast=True), BeforeValidator(_contents)]


def images_of(parts: Sequence[DataPart]) -> tuple[Image, ...]:
    """The images of parts, in their order."""
    return tuple(part.inline_data for part in parts if part.inline_data is not None)
