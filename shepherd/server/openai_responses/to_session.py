"""Items as a `Session`."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeAlias, cast

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, Message, ToolCall
from shepherd.server.errors import ApiError, invalid, unsupported
from shepherd.server.openai_responses.items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    MessageItem,
    ReasoningItem,
)
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.tools import OfferedTool, Toolset, toolset
from shepherd.server.seal import Seal, SealError
from shepherd.server.wire.content import Content
from shepherd.server.wire.custom_tools import custom_arguments
from shepherd.server.wire.translation import effort_named
from shepherd.session import Session
from shepherd.structure import OutputFormat, ToolChoice

REASONING = "responses.reasoning"
"""The purpose of the signature of reasoning."""

MAX_LOGGED = 100
logger = logging.getLogger(__name__)


Source: TypeAlias = tuple[Message, Sequence[str]]
"""A message, and the ids of the items that it was made of."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session, the tools of the request, and where each message of the session came from."""

    session: Session
    tools: Toolset
    sources: Sequence[Source]


@dataclass(frozen=True, slots=True)
class Translator:
    """Makes sessions of requests; `thinking` is the default."""

    seal: Seal
    thinking: bool = False
    _logged: set[str] = field(default_factory=set[str])

    def conversation(
        self, request: ResponsesRequest, items: Sequence[Item], model: ModelInfo
    ) -> Conversation:
        """The conversation of a request, whose `input` is the end of `items`.

        Raises ApiError for what the model or the server can't do.
        """
        request.check_supported()
        offered = toolset(request.tools, model)
        self._log_left_out(offered)
        tools, tool_choice = choose(request, offered)
        _check_images(items, model)
        messages = _Messages(self.seal, offered)
        messages.add(items)
        session = Session(
            system_message=_system_message(request.instructions, items),
            messages=[message for message, _ in messages.messages],
            tools=tools.specs,
            sampling=request.to_sampling(),
            thinking=self._thinks(request),
            thinking_effort=effort_named(request.reasoning.effort if request.reasoning else None),
            tool_choice=tool_choice,
            output_format=output_format(request),
        )
        return Conversation(session, offered, messages.messages)

    def sign(self, content: JsonObject) -> str:
        """The content of a reasoning item as a word that comes back (see `SignedReasoning`)."""
        return self.seal.wrap(REASONING, json.dumps(content))

    def _log_left_out(self, tools: Toolset) -> None:
        """Log the types of tools that are not offered, each once."""
        types = sorted(set(tools.left_out) - self._logged)
        if types and len(self._logged) < MAX_LOGGED:
            self._logged.update(types)
            logger.warning("Tools that only OpenAI runs are left out: %s", ", ".join(types))

    def _thinks(self, request: ResponsesRequest) -> bool:
        effort = request.reasoning.effort if request.reasoning is not None else None
        return self.thinking if effort is None else effort != "none"


def _system_message(instructions: str | None, items: Sequence[Item]) -> str:
    texts = (content.text for item in items if (content := _instruction(item)) is not None)
    return "\n\n".join(filter(None, [instructions, *texts]))


def _instruction(item: Item) -> Content | None:
    """The content of a system or developer message, None for any other item."""
    match item.model:
        case MessageItem(role="system" | "developer", content=content):
            return content
        case _:
            return None


def _check_images(items: Sequence[Item], model: ModelInfo) -> None:
    """Raise ApiError for an image that the model can't see, or in a message of a wrong role."""
    for item in items:
        if not _content(item).images:
            continue
        if model.vision is False:
            reason = f"images are not supported: {model.id} reads text only; leave them out"
        elif isinstance(item.model, MessageItem) and item.model.role != "user":
            reason = "images go with messages of the user and with the outputs of calls"
        else:
            continue
        raise invalid(item.param, reason)


def _content(item: Item) -> Content:
    match item.model:
        case MessageItem(content=content):
            return content
        case CallOutputItem(output=output):
            return output
        case _:
            return Content()


@dataclass(slots=True)
class SignedReasoning:
    """The reasoning of an answer, and what the provider behind the server needs again.

    `extra` is that of the message, `calls` that of its calls by their ids (see `Message`).
    """

    text: str = ""
    extra: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    calls: dict[str, dict[str, JsonObject]] = field(
        default_factory=dict[str, dict[str, JsonObject]]
    )

    def add(self, content: JsonObject) -> None:
        """Add the content of one item."""
        self.text += content.get("text", "")
        self.extra |= content.get("extra", {})
        self.calls |= content.get("calls", {})


class _Messages:
    """The messages of a conversation; the items of one answer become one message."""

    def __init__(self, seal: Seal, tools: Toolset) -> None:
        self.messages: list[Source] = []
        self._seal = seal
        self._tools = tools.by_name()
        self._calls: dict[str, ToolCall] = {}

    def add(self, items: Sequence[Item]) -> None:
        """Append the messages of `items`; raises ApiError."""
        spoken = [item for item in items if _instruction(item) is None]
        for is_answer, group in groupby(spoken, key=_is_answer):
            members = [*group]
            if is_answer:
                self.messages.append((self._answer(members), [item.id for item in members]))
            else:
                self.messages += [(self._input(item), [item.id]) for item in members]

    def _input(self, item: Item) -> Message:
        content = _content(item)
        if not isinstance(item.model, CallOutputItem):
            return Message.user(content.text, content.images)
        call = self._calls.get(item.model.call_id)
        if call is None:
            raise invalid(f"{item.param}.call_id", f"no call has the id {item.model.call_id!r}")
        return replace(Message.tool(call, content.text), images=content.images)

    def _answer(self, items: Sequence[Item]) -> Message:
        """The message of an answer: its texts, its reasoning and its calls."""
        text, reasoning, calls = "", SignedReasoning(), list[ToolCall]()
        for item in items:
            match item.model:
                case MessageItem(content=content):
                    text += content.text
                case ReasoningItem():
                    reasoning.add(self._reasoning(item.model, item))
                case FunctionCallItem() | CustomCallItem():
                    calls.append(self._call(item.model))
                case _:
                    pass
        calls = [replace(call, extra=reasoning.calls.get(call.id, {})) for call in calls]
        self._calls.update((call.id, call) for call in calls)
        message = Message.assistant(text, reasoning.text, tuple(calls))
        return replace(message, extra=reasoning.extra)

    def _call(self, model: FunctionCallItem | CustomCallItem) -> ToolCall:
        name = self._offered_name(model.name, model.namespace or "")
        if isinstance(model, CustomCallItem):
            return ToolCall(model.call_id, name, custom_arguments(model.input))
        return ToolCall(model.call_id, name, model.arguments)

    def _offered_name(self, name: str, namespace: str) -> str:
        """The name by which the model knows a tool of an earlier call."""
        same = self._tools.get(name, [])
        exact = [tool for tool in same if tool.namespace == namespace]
        return (exact or same)[0].spec.name if same else name

    def _reasoning(self, model: ReasoningItem, item: Item) -> JsonObject:
        """The content that was signed, else the text that can be read.

        Raises ApiError for a signature that is not valid. Stored reasoning is left out then: its
        client can't do that, and the server's key is a new one.
        """
        if model.encrypted_content is not None:
            try:
                return json.loads(self._seal.unwrap(REASONING, model.encrypted_content))
            except SealError as error:
                if item.stored:
                    return {}
                param = f"{item.param}.encrypted_content"
                message = f"{param}: {error}; leave the reasoning out"
                raise ApiError(400, message, "invalid_encrypted_content", param) from error
        parts = model.summary if model.content is None else model.content
        return {"text": "\n\n".join(part.text for part in parts)}


def _is_answer(item: Item) -> bool:
    """Whether the model has written the item."""
    if isinstance(item.model, MessageItem):
        return item.model.role == "assistant"
    return not isinstance(item.model, CallOutputItem)


_CHOICE = "tool_choice"
_FORMAT = "text.format"
_ANY_OBJECT: JsonObject = {"type": "object"}
_KINDS = ("function", "custom")
MAX_ALLOWED = 1000
ToolsByName: TypeAlias = Mapping[str, Sequence[OfferedTool]]


def choose(request: ResponsesRequest, offered: Toolset) -> tuple[Toolset, ToolChoice | None]:
    """The tools that the model sees, and the calls that the answer must be; raises ApiError."""
    choice, single = request.tool_choice, request.parallel_tool_calls is False
    if choice in (None, "auto"):
        return offered, None
    if choice == "none":
        return offered.keep(lambda _: False), None
    if choice == "required":
        return _required(offered, single=single)
    if not isinstance(choice, dict):
        raise _bad_choice('must be "none", "auto", "required" or an object with a type')
    fields = cast(JsonObject, choice)
    kind: Any = fields.get("type")
    if kind == "allowed_tools":
        return _allowed(fields, offered, single=single)
    if kind in _KINDS:
        return offered, ToolChoice(
            _named(fields, offered.by_name(), _CHOICE).spec.name, single=single
        )
    raise unsupported(_CHOICE, f"tool_choice: tools of type {str(kind)[:40]!r} do not run here.")


def _required(offered: Toolset, *, single: bool) -> tuple[Toolset, ToolChoice]:
    if not offered.tools:
        raise _bad_choice("a call is required, but no tools are offered")
    return offered, ToolChoice(single=single)


def _allowed(
    fields: JsonObject, offered: Toolset, *, single: bool
) -> tuple[Toolset, ToolChoice | None]:
    """Only the tools that are named, of which one must be called if the mode is `required`."""
    fields = cast(JsonObject, fields.get("allowed_tools", fields))
    mode: Any = fields.get("mode")
    names: Any = fields.get("tools")
    if mode not in ("auto", "required"):
        raise _bad_choice("the mode must be auto or required", "mode")
    if not isinstance(names, list) or len(cast(list[Any], names)) > MAX_ALLOWED:
        raise _bad_choice("tools must be a list of tools", "tools")
    allowed: set[str] = set()
    by_name = offered.by_name()
    for index, item in enumerate(cast(list[Any], names)):
        param = f"{_CHOICE}.tools.{index}"
        if _is_namespace(item):
            continue
        allowed |= _allowed_names(item, by_name, param)
    groups = {item["name"] for item in cast(list[Any], names) if _is_namespace(item)}
    allowed |= {tool.spec.name for tool in offered.tools if tool.namespace in groups}
    kept = offered.keep(lambda tool: tool.spec.name in allowed)
    return _required(kept, single=single) if mode == "required" else (kept, None)


def _is_namespace(item: Any) -> bool:
    fields = cast(JsonObject, item) if isinstance(item, dict) else {}
    return fields.get("type") == "namespace" and isinstance(fields.get("name"), str)


def _allowed_names(item: object, tools: ToolsByName, param: str) -> set[str]:
    """The tool that one entry allows; none if it is of a type that is left out."""
    fields = cast(JsonObject, item) if isinstance(item, dict) else {}
    kind: Any = fields.get("type")
    if isinstance(kind, str) and kind not in _KINDS:
        return set()
    return {_named(fields, tools, param).spec.name}


def _named(fields: JsonObject, tools: ToolsByName, param: str) -> OfferedTool:
    """The tool that `{"type": …, "name": …}` names."""
    inner: Any = fields.get("function", fields)
    source = cast(JsonObject, inner) if isinstance(inner, dict) else {}
    name, namespace = source.get("name"), source.get("namespace")
    custom = fields.get("type") == "custom"
    same: Sequence[OfferedTool] = tools.get(name, ()) if isinstance(name, str) else ()
    for tool in same:
        if tool.custom == custom and namespace in (None, tool.namespace):
            return tool
    raise invalid(param, f"there is no {fields.get('type')} tool {str(name)[:256]!r}")


def _bad_choice(reason: str, field: str = "") -> ApiError:
    param = f"{_CHOICE}.{field}" if field else _CHOICE
    return invalid(param, reason)


def output_format(request: ResponsesRequest) -> OutputFormat | None:
    """The format of the answer, None for free text; raises ApiError."""
    value: Any = request.text.format if request.text is not None else None
    if value is None:
        return None
    fields = cast(JsonObject, value) if isinstance(value, dict) else {}
    match fields.get("type"):
        case "text":
            return None
        case "json_object":
            return OutputFormat(_ANY_OBJECT)
        case "json_schema":
            return _json_schema(fields)
        case _:
            raise invalid(_FORMAT, "its type must be text, json_object or json_schema")


def _json_schema(fields: JsonObject) -> OutputFormat:
    """A schema that stands beside its name, as this API has it."""
    schema: Any = fields.get("schema")
    if not isinstance(schema, dict):
        param = f"{_FORMAT}.schema"
        raise ApiError(400, f"{param} must be an object", "invalid_value", param)
    return OutputFormat(cast(JsonObject, schema), strict=fields.get("strict") is True)
