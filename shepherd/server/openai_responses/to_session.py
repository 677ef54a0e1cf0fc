"""A request for a response as a `Session`: its items become messages."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias, cast

from msgspec import Struct, structs

from shepherd.backends.base import ModelInfo
from shepherd.json_text import as_object
from shepherd.messages import JsonObject, Message, ToolCall
from shepherd.server.errors import ApiError, invalid
from shepherd.server.openai_responses import items, requests
from shepherd.server.openai_responses.defined import DEFINED
from shepherd.server.openai_responses.tools import Toolset, toolset
from shepherd.server.seal import Seal, SealError
from shepherd.server.wire.content import Content
from shepherd.server.wire.fields import check_images, effort_named
from shepherd.server.wire.tools import CUSTOM_INPUT, choose_tools
from shepherd.session import OutputFormat, Session

REASONING = "responses.reasoning"
"""The purpose of the signature of reasoning."""

_FORMAT = "text.format"
Source: TypeAlias = tuple[Message, Sequence[str]]
"""A message, and the ids of the items that it was made of."""


class Conversation(Struct, frozen=True):
    """A session, the tools of the request, and where each message of the session came from."""

    session: Session
    tools: Toolset
    sources: Sequence[Source]


class Translator(Struct, frozen=True):
    """Makes sessions of requests; `thinking` is the default."""

    seal: Seal
    thinking: bool = False

    def conversation(
        self, request: requests.ResponsesRequest, history: Sequence[items.Item], model: ModelInfo
    ) -> Conversation:
        """The conversation of a request, whose `input` is the end of `history`.

        Raises ApiError for what the model or the server can't do.
        """
        offered = toolset(request.tools, model)
        single = request.parallel_tool_calls is False
        tools, tool_choice = choose_tools(request.tool_choice, offered.tools, single=single)
        _check_images(history, model)
        messages = _Messages(self.seal, offered)
        messages.add(history)
        effort = request.reasoning.effort if request.reasoning is not None else None
        session = Session(
            system_message=_system_message(request.instructions, history),
            messages=[message for message, _ in messages.messages],
            tools=[tool.spec for tool in tools],
            sampling=request.to_sampling(),
            thinking=self.thinking if effort is None else effort != "none",
            thinking_effort=effort_named(effort),
            tool_choice=tool_choice,
            output_format=_output_format(request),
        )
        return Conversation(session, offered, messages.messages)

    def sign(self, content: JsonObject) -> str:
        """The content of a reasoning item as a word that comes back (see `_Messages`)."""
        return self.seal.wrap(REASONING, json.dumps(content))


def _system_message(instructions: str | None, history: Sequence[items.Item]) -> str:
    """The instructions of a request, and the system messages of its whole conversation."""
    contents = [instruction(item) for item in history]
    texts = [content.text for content in contents if content is not None]
    return "\n\n".join(filter(None, [instructions, *texts]))


def instruction(item: items.Item) -> Content | None:
    """The content of a system or developer message, None for any other item."""
    model = item.model
    if isinstance(model, items.MessageItem) and model.role in ("system", "developer"):
        return model.content
    return None


def _check_images(history: Sequence[items.Item], model: ModelInfo) -> None:
    """Raise ApiError for an image that the model can't see, or in a message of a wrong role."""
    for item in history:
        images = _content(item).images
        check_images(images, model, item.param)
        if images and isinstance(item.model, items.MessageItem) and item.model.role != "user":
            reason = "images go with messages of the user and with the outputs of calls"
            raise invalid(item.param, reason)


def _content(item: items.Item) -> Content:
    """The text and images that an item shows to the model; nothing for calls and reasoning."""
    if isinstance(item.model, items.MessageItem):
        return item.model.content
    return item.model.output if isinstance(item.model, items.CallOutputItem) else Content()


class _Messages:
    """The messages of a conversation; the items of one answer become one message."""

    def __init__(self, seal: Seal, tools: Toolset) -> None:
        self.messages: list[Source] = []
        self._seal = seal
        self._tools_by_name = tools.by_name()
        self._calls_by_id: dict[str, ToolCall] = {}  # those of all answers so far

    def add(self, history: Sequence[items.Item]) -> None:
        """Append the messages of `history`; raises ApiError."""
        kept = (item for item in history if not isinstance(item.model, items.ForeignItem))
        spoken = [item for item in kept if instruction(item) is None]
        for is_answer, group in groupby(spoken, key=_is_answer):
            members = [*group]
            if is_answer:
                self.messages.append((self._answer(members), [item.id for item in members]))
            else:
                self.messages += [(self._input(item), [item.id]) for item in members]

    def _input(self, item: items.Item) -> Message:
        """The message of the user, or the result of a call; raises ApiError for an unknown call."""
        content = _content(item)
        if isinstance(item.model, items.CompactionItem):
            return Message.user(self._signed(item.model, item).get("text", ""))
        if not isinstance(item.model, items.CallOutputItem):
            return Message.user(content.text, content.images)
        call = self._calls_by_id.get(item.model.call_id)
        if call is None:
            raise invalid(f"{item.param}.call_id", f"no call has the id {item.model.call_id!r}")
        return structs.replace(Message.tool(call, content.text), images=content.images)

    def _answer(self, members: Sequence[items.Item]) -> Message:
        """The message of an answer: its texts, its reasoning and its calls.

        Reasoning that was signed also holds what the provider behind the server needs again:
        `extra` is that of the message, `call_extras` those of its calls by their ids.
        """
        text, reasoning, calls = "", "", list[ToolCall]()
        extra, call_extras = JsonObject(), JsonObject()
        for item in members:
            match item.model:
                case items.MessageItem(content=content):
                    text += content.text
                case items.ReasoningItem():
                    signed = self._signed(item.model, item)
                    reasoning += signed.get("text", "")
                    extra |= signed.get("extra", {})
                    call_extras |= signed.get("calls", {})
                case items.FunctionCallItem() | items.CustomCallItem() | items.DefinedCallItem():
                    calls.append(self._call(item.model, item.data))
                case _:  # results are no part of an answer, and references were resolved
                    pass
        calls = [structs.replace(call, extra=call_extras.get(call.id, {})) for call in calls]
        self._calls_by_id.update((call.id, call) for call in calls)
        return structs.replace(Message.assistant(text, reasoning, tuple(calls)), extra=extra)

    def _call(self, model: items.AnyCallItem, data: JsonObject) -> ToolCall:
        """The call, as the model would make it now: any tool is a function for it."""
        if isinstance(model, items.DefinedCallItem):
            kind = model.type.removesuffix("_call")
            return ToolCall(model.call_id, kind, DEFINED[kind].arguments(data))
        name = self._offered_name(model.name, model.namespace or "")
        if isinstance(model, items.CustomCallItem):
            return ToolCall(model.call_id, name, {CUSTOM_INPUT: model.input})
        return ToolCall(model.call_id, name, model.arguments)

    def _offered_name(self, name: str, namespace: str) -> str:
        """The name by which the model knows a tool of an earlier call.

        A tool that is offered in another namespace now, or not any more, is the nearest there is.
        """
        same_name = self._tools_by_name.get(name, [])
        exact = [tool for tool in same_name if tool.namespace == namespace]
        return (exact or same_name)[0].spec.name if same_name else name

    def _signed(self, model: items.SignedItem, item: items.Item) -> JsonObject:
        """The content that was signed, else the reasoning that can be read.

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
                message = f"{param}: {error}; leave the item out"
                raise ApiError(400, message, "invalid_encrypted_content", param) from error
        assert isinstance(model, items.ReasoningItem)  # of the others, all is signed
        parts = model.summary if model.content is None else model.content
        return {"text": "\n\n".join(part.text for part in parts)}


def _is_answer(item: items.Item) -> bool:
    """Whether the model has written the item."""
    if isinstance(item.model, items.MessageItem):
        return item.model.role == "assistant"
    return not isinstance(item.model, items.CallOutputItem | items.CompactionItem)


def _output_format(request: requests.ResponsesRequest) -> OutputFormat | None:
    """The format of the answer, None for free text; raises ApiError."""
    value: Any = request.text.format if request.text is not None else None
    if value is None:
        return None
    fields = as_object(value)
    match fields.get("type"):
        case "text":
            return None
        case "json_object":
            return OutputFormat({"type": "object"})
        case "json_schema":  # the schema stands beside its name, not below it
            schema: Any = fields.get("schema")
            if not isinstance(schema, dict):
                param = f"{_FORMAT}.schema"
                raise ApiError(400, f"{param} must be an object", "invalid_value", param)
            return OutputFormat(cast(JsonObject, schema), strict=fields.get("strict") is True)
        case _:
            raise invalid(_FORMAT, "its type must be text, json_object or json_schema")
