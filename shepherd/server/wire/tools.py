"""Tools as several APIs have them: functions, and OpenAI's custom tools, whose input is text.

A custom tool is offered as a function with one string argument. `choose_tools` reads OpenAI's
`tool_choice`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Struct
from pydantic import BeforeValidator, Field

from shepherd.backends.base import ModelInfo
from shepherd.backends.inprocess.schema import prepare
from shepherd.errors import InvalidRequestError
from shepherd.json_text import as_object
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid, unsupported
from shepherd.server.wire.content import arguments_object
from shepherd.server.wire.fields import MAX_TOOLS
from shepherd.server.wire.lark import arguments_rule
from shepherd.session import ToolChoice

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
    """A tool whose input is text, which may have to fit a grammar."""

    name: ToolName
    description: str | None = None
    format: CustomFormat | None = None

    def to_spec(self) -> ToolSpec:
        """The function that stands for the tool."""
        text: JsonObject = {"type": "string"}
        match self.format:
            case GrammarFormat(syntax="lark", definition=definition):
                text["description"] = f"Text that fits this Lark grammar:\n{definition}"
            case GrammarFormat(definition=definition):
                # a pattern of JSON schema may match anywhere in the text
                text["pattern"] = f"^(?:{definition})$"
            case _:
                pass
        parameters: JsonObject = {
            "type": "object",
            "properties": {CUSTOM_INPUT: text},
            "required": [CUSTOM_INPUT],
            "additionalProperties": False,
        }
        enforced = isinstance(self.format, GrammarFormat)
        about = self.description or ""
        return ToolSpec(self.name, about, parameters, enforced=enforced, grammar=self._lark_rule)

    @cached_property
    def _lark_rule(self) -> str:
        """llguidance's rule for the arguments of a call if the format is a grammar of Lark."""
        match self.format:
            case GrammarFormat(syntax="lark", definition=definition):
                return arguments_rule(definition, CUSTOM_INPUT)
            case _:
                return ""

    def check_format(self, model: ModelInfo, param: str) -> None:
        """Raise ApiError for a format at `param` that can't be enforced with this model."""
        if not isinstance(self.format, GrammarFormat):  # any text is right
            return
        if not model.checks_calls:
            message = f"{model.id} can't be held to a grammar in its calls; use the format text."
            raise unsupported(param, f"{param}: {message}")
        try:
            unenforced = prepare(self.to_spec().parameters).unenforced
        except InvalidRequestError as error:
            raise invalid(f"{param}.definition", str(error)) from error
        if unenforced:
            message = "the regular expression looks around or back, which can't be enforced."
            raise unsupported(f"{param}.definition", f"{param}.definition: {message}")


def custom_input(call: ToolCall) -> str:
    """The input of a call, also if the model named its argument otherwise.

    A call without any text gives its arguments as JSON, so that the client sees what came.
    """
    values = [call.arguments.get(CUSTOM_INPUT), *call.arguments.values()]
    texts = [value for value in values if isinstance(value, str)]
    return texts[0] if texts else call.arguments_json


class OfferedTool(Struct, frozen=True):
    """A tool as the model sees it (`spec`), and its name, namespace and type in the API."""

    spec: ToolSpec
    name: str
    namespace: str = ""
    kind: str = "function"


OfferedTools: TypeAlias = tuple[OfferedTool, ...]
_CHOICE = "tool_choice"
_NAMED = ("function", "custom")
"""The types of tools of which there are several; one of another type needs no name."""
_ANY_FUNCTION = (None, "tool")
"""Other words for the type of a function."""


def choose_tools(
    choice: object, offered: OfferedTools, *, single: bool
) -> tuple[OfferedTools, ToolChoice | None]:
    """The tools that the model sees, and the calls that the answer must be; raises ApiError.

    `choice` is the field `tool_choice` of a request, and `single` allows at most one call. The
    request may have offered tools of types that do not run here: such a type is refused as the
    choice, and skipped among the allowed ones.
    """
    if choice in (None, "auto"):
        return offered, None
    if choice == "none":
        return (), None
    if choice == "required":
        return _required(offered, single=single)
    if not isinstance(choice, dict):
        raise invalid(_CHOICE, 'must be "none", "auto", "required" or an object with a type')
    fields = cast(JsonObject, choice)
    kind: object = fields.get("type")
    if _is_callable(kind, offered):
        tool = _named_tool(fields, offered)
        return offered, ToolChoice(tool.spec.name, single=single)
    if kind != "allowed_tools":
        message = f"{_CHOICE}: tools of type {str(kind)[:40]!r} do not run here."
        raise unsupported(_CHOICE, message)
    inner: object = fields.get("allowed_tools", fields)  # the Responses API has no inner object
    allowed = as_object(inner)
    kept = _allowed_tools(allowed.get("tools"), offered)
    if allowed.get("mode") not in ("auto", "required"):
        raise invalid(_CHOICE, "the mode of allowed_tools must be auto or required")
    return (kept, None) if allowed["mode"] == "auto" else _required(kept, single=single)


def _is_callable(kind: object, offered: OfferedTools) -> bool:
    """Whether tools of a type can be called here."""
    return kind in (*_NAMED, *_ANY_FUNCTION) or any(tool.kind == kind for tool in offered)


def _required(offered: OfferedTools, *, single: bool) -> tuple[OfferedTools, ToolChoice]:
    """An answer that must be a call, of whichever tool."""
    if not offered:
        raise invalid(_CHOICE, "a call is required, but no tools are offered")
    return offered, ToolChoice(single=single)


def _allowed_tools(named: object, offered: OfferedTools) -> OfferedTools:
    """Those of `offered` that the list in `allowed_tools` names, in the order of `offered`."""
    names = cast(list[object], named) if isinstance(named, list) else None
    if names is None or len(names) > MAX_TOOLS:
        raise invalid(_CHOICE, "allowed_tools needs a list of tools")
    kept: list[OfferedTool] = []
    for item in names:
        fields = as_object(item)
        kind: object = fields.get("type")
        if not isinstance(kind, str) or _is_callable(kind, offered):
            kept.append(_named_tool(fields, offered))
        elif kind == "namespace" and isinstance(fields.get("name"), str):
            kept += [tool for tool in offered if tool.namespace == fields["name"]]
    return tuple(tool for tool in offered if tool in kept)


def _named_tool(fields: JsonObject, offered: Sequence[OfferedTool]) -> OfferedTool:
    """The tool that `{"type": "custom", "name": …}` names; raises ApiError.

    The chat API has the name in an inner object: `{"type": "custom", "custom": {"name": …}}`.
    """
    kind: object = fields.get("type")
    if kind in _ANY_FUNCTION:
        kind = "function"
    inner: object = fields.get(str(kind), fields)
    named = as_object(inner)
    name: object = named.get("name") if kind in _NAMED else kind
    if not isinstance(name, str) or not name:
        raise invalid(_CHOICE, "a tool needs its name")
    for tool in offered:
        is_same = tool.name == name and tool.kind == kind
        # without a namespace, the first tool of that name is meant
        if is_same and named.get("namespace") in (None, tool.namespace):
            return tool
    raise invalid(_CHOICE, f"there is no {kind} tool {name[:256]!r}")
