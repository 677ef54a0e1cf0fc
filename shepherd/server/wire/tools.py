"""Tools as several APIs have them: functions, and OpenAI's custom tools, whose input is text.

A custom tool is offered as a function with one string argument.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from shepherd.backends.base import ModelInfo
from shepherd.backends.inprocess.schema import prepare
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid, unsupported
from shepherd.server.wire.content import arguments_object

CUSTOM_INPUT = "input"
"""The argument of a custom tool: the text."""

MAX_PATTERN = 16_384
"""Characters of the longest regular expression."""

NO_ARGUMENTS: JsonObject = {"type": "object", "properties": {}}
ToolName = Annotated[str, Field(min_length=1, max_length=256)]


class WireFunction(RequestModel):
    """A function on offer; `parameters` is a JSON schema."""

    name: ToolName
    description: str | None = None
    parameters: JsonObject | None = None

    def to_spec(self) -> ToolSpec:
        """The function as a model sees it."""
        return ToolSpec(self.name, self.description or "", self.parameters or NO_ARGUMENTS)


class WireFunctionCall(RequestModel):
    """The function of a replayed call; its arguments come as JSON text or as an object."""

    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[JsonObject, BeforeValidator(arguments_object)] = Field(
        default_factory=dict[str, Any]
    )


class TextFormat(RequestModel):
    """Any text."""

    type: Literal["text"]


class GrammarFormat(RequestModel):
    """Text that fits a grammar."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)]


CustomFormat = Annotated[TextFormat | GrammarFormat, Field(discriminator="type")]


class CustomTool(RequestModel):
    """A tool whose input is text, which may have to fit a regular expression."""

    name: ToolName
    description: str | None = None
    format: CustomFormat | None = None

    def to_spec(self) -> ToolSpec:
        """The function that stands for the tool."""
        text: JsonObject = {"type": "string"}
        grammar = self.format if isinstance(self.format, GrammarFormat) else None
        if grammar is not None:
            text["pattern"] = f"^(?:{grammar.definition})$"
        parameters: JsonObject = {
            "type": "object",
            "properties": {CUSTOM_INPUT: text},
            "required": [CUSTOM_INPUT],
            "additionalProperties": False,
        }
        return ToolSpec(self.name, self.description or "", parameters, enforced=grammar is not None)

    def check_format(self, model: ModelInfo, param: str) -> None:
        """Raise ApiError for a format at `param` that can't be enforced with this model."""
        if not isinstance(self.format, GrammarFormat):
            return
        if self.format.syntax == "lark":
            message = "lark grammars can't be enforced; use the syntax regex, or the format text."
            raise unsupported(f"{param}.syntax", f"{param}.syntax: {message}")
        if not model.checks_calls:
            message = f"{model.id} can't be held to a grammar in its calls; use the format text."
            raise unsupported(param, f"{param}: {message}")
        try:
            unenforced = prepare(self.to_spec().parameters).unenforced
        except InvalidRequestError as error:
            raise invalid(param, str(error)) from error
        if unenforced:
            message = "the regular expression looks around or back, which can't be enforced."
            raise unsupported(f"{param}.definition", f"{param}.definition: {message}")


def custom_input(call: ToolCall) -> str:
    """The input of a call, also if the model named its argument otherwise."""
    values = [call.arguments.get(CUSTOM_INPUT), *call.arguments.values()]
    texts = [value for value in values if isinstance(value, str)]
    return texts[0] if texts else call.arguments_json
