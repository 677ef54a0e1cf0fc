"""A request of the Messages API as a `Session`."""

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile

from msgspec import Struct, field

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.sampling import Sampling
from shepherd.server.anthropic import answers, requests
from shepherd.server.errors import ApiError, invalid
from shepherd.server.wire.content import Content
from shepherd.server.wire.fields import check_images, effort_named
from shepherd.server.wire.tools import NO_ARGUMENTS
from shepherd.session import OutputFormat, Session, ToolChoice

logger = logging.getLogger(__name__)

_NO_THREADS = "thread_unsupported_request"
"""Anthropic's clients know this code, and then send the whole conversation."""

ERROR_PREFIX = "Error:"
"""What the result of a failed call begins with, here and for all backends."""


def session_of(
    request: requests.PromptRequest, thoughts: answers.Thoughts, model: ModelInfo, *, thinking: bool
) -> Session:
    """The conversation of a request; `thinking` is the default.

    Raises ApiError for parameters that would change the answer and are not supported, and for
    reasoning that this server has not signed.
    """
    if request.thread:
        message = "thread is not served: send the whole conversation without it."
        raise ApiError(400, message, _NO_THREADS, "thread")
    tools = _offered_tools(request)
    messages = _Conversation(thoughts, model).messages(request.messages)
    # system messages before all others join the system prompt; later ones keep their places
    leading = [*takewhile(lambda message: message.role is Role.SYSTEM, messages)]
    messages = messages[len(leading) :]
    system_texts = (request.system, *(message.content for message in leading))
    config, thinking_fields = request.output_config, request.thinking
    wire_format = (config and config.format) or request.output_format
    return Session(
        system_message="\n\n".join(text for text in system_texts if text),
        messages=messages,
        tools=tools,
        sampling=Sampling(
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            stop=tuple(request.stop_sequences) if request.stop_sequences else None,
        ),
        thinking=thinking_fields.type in ("enabled", "adaptive") if thinking_fields else thinking,
        thinking_budget=thinking_fields.budget_tokens if thinking_fields else None,
        thinking_effort=effort_named(config and config.effort),
        tool_choice=_tool_choice(request, tools),
        output_format=OutputFormat(wire_format.schema_) if wire_format else None,
        continues=bool(messages) and messages[-1].role is Role.ASSISTANT,
    )


class _Conversation(Struct):
    """Translates messages in their order; results get the name of the tool they answer."""

    thoughts: answers.Thoughts
    model: ModelInfo
    tool_names: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the called tools by the ids of the calls."""

    def messages(self, wire: Sequence[requests.WireMessage]) -> list[Message]:
        """The messages; raises ApiError for one that is not possible."""
        result: list[Message] = []
        for index, message in enumerate(wire):
            where = f"messages.{index}.content"
            if message.role == "assistant":
                result.append(self._assistant(message.content, where))
            else:
                result += self._user(message, where)
        last = result[-1] if result else None
        if last is not None and last.role is Role.ASSISTANT and last.tool_calls:
            where = f"messages.{len(wire) - 1}"
            raise invalid(where, "the calls of the last message need their results behind them")
        return result

    def _user(self, message: requests.WireMessage, where: str) -> Iterator[Message]:
        """The results in a message of the user or of the system, then its text and images."""
        spoken: list[Content] = []
        for index, block in enumerate(message.content):
            match block:
                case requests.Result() if message.role == "user":
                    check_images(block.content.images, self.model, f"{where}.{index}")
                    yield self._result(block)
                case str():
                    spoken.append(Content(block))
                case Content() if message.role == "user":
                    check_images(block.images, self.model, f"{where}.{index}")
                    spoken.append(block)
                case _:
                    raise _misplaced(f"{where}.{index}", message.role)
        try:
            content = requests.joined(spoken)
        except ValueError as error:
            raise invalid(where, str(error)) from error
        if message.role == "system":
            if content.text:
                yield Message(Role.SYSTEM, content.text)
        elif content.text or content.images or not message.content:  # results alone are no message
            yield Message.user(content.text, content.images)

    def _result(self, block: requests.Result) -> Message:
        """The result of a call, whose text tells that the call failed."""
        name, text = self.tool_names.get(block.call_id, ""), block.content.text
        if block.failed and not text.startswith(ERROR_PREFIX):
            text = f"{ERROR_PREFIX} {text}".rstrip()
        images = block.content.images
        return Message(Role.TOOL, text, tool_call_id=block.call_id, name=name, images=images)

    def _assistant(self, blocks: Sequence[requests.Block], where: str) -> Message:
        """An answer of the model; raises ApiError for reasoning that was changed."""
        texts: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        extras: list[tuple[str, str]] = []  # sealed data, and their places in the request
        for index, block in enumerate(blocks):
            match block:
                case str():
                    texts.append(block)
                case requests.Thinking():
                    with _signed(f"{where}.{index}.signature"):
                        reasoning.append(self.thoughts.text(block.text, block.signature))
                case requests.Redacted():
                    extras.append((block.data, f"{where}.{index}.data"))
                case ToolCall():
                    calls.append(block)
                case requests.ServerToolBlock():
                    logger.info("A block of type %.64s is left out of the history", block.type)
                case _:
                    raise _misplaced(f"{where}.{index}", "assistant")
        self.tool_names.update((call.id, call.name) for call in calls)
        message = Message.assistant("".join(texts), "".join(reasoning), tuple(calls))
        for data, place in extras:  # they may belong to calls, which come after them
            with _signed(place):
                message = self.thoughts.with_extras(message, data)
        return message


@contextmanager
def _signed(where: str) -> Generator[None]:
    """Report reasoning at `where` that this server has not signed, as an ApiError."""
    try:
        yield
    except ValueError as error:
        reason = "it is not valid: this server has not written this reasoning"
        raise invalid(where, reason) from error


def _misplaced(where: str, role: str) -> ApiError:
    """The error for a block that messages of the role do not have, such as a call of the user."""
    return invalid(where, f"this block is not possible in a message of the {role}")


def _command_schema(commands: str, fields: str) -> JsonObject:
    """The schema of a tool's arguments: one of the commands, and fields that some of them take.

    Both are names with spaces between them. Fields without a type below are texts.
    """
    types: JsonObject = {
        "command": {"type": "string", "enum": commands.split()},
        "insert_line": {"type": "integer"},
        "view_range": {"type": "array", "items": {"type": "integer"}},
    }
    names = ("command", *fields.split())
    properties = {name: types.get(name, {"type": "string"}) for name in names}
    return {"type": "object", "properties": properties, "required": ["command"]}


_EDITS = "file_text old_str new_str insert_line insert_text"
_DEFINED: Mapping[str, tuple[str, JsonObject]] = {
    "bash_": (
        "Run a command in a bash session that stays open. With restart, start it anew.",
        {
            "type": "object",
            "properties": {"command": {"type": "string"}, "restart": {"type": "boolean"}},
        },
    ),
    "text_editor_": (
        "View, create and edit text files.",
        _command_schema("view create str_replace insert", f"path {_EDITS} view_range"),
    ),
    "memory_": (
        "Keep files under /memories, which last beyond this conversation.",
        _command_schema(
            "view create str_replace insert delete rename",
            f"path view_range {_EDITS} old_path new_path",
        ),
    ),
}
"""The tools that Anthropic defines and clients run, by how their types begin."""


def _offered_tools(request: requests.PromptRequest) -> list[ToolSpec]:
    """The tools that the model sees; raises ApiError for one without a name.

    Tools of other types, which mostly Anthropic's servers run, are left out.
    """
    choice = request.tool_choice
    if choice is not None and choice.type == "none":
        return []
    specs = (_spec(tool, f"tools.{index}") for index, tool in enumerate(request.tools))
    return [spec for spec in specs if spec is not None]


def left_out_types(request: requests.PromptRequest) -> list[str]:
    """The types of the tools that no model is offered."""
    types = [str(tool.type) for i, tool in enumerate(request.tools) if _spec(tool, f"{i}") is None]
    return [*types, "mcp"] if request.mcp_servers else types


def _tool_choice(request: requests.PromptRequest, tools: Iterable[ToolSpec]) -> ToolChoice | None:
    """The calls of which the answer must consist; None if it need not call. Raises ApiError."""
    choice = request.tool_choice
    # for "none", the session has no tools
    if choice is None or choice.type in ("auto", "none"):
        return None
    offered_names = {tool.name for tool in tools}
    if choice.type == "tool" and choice.name not in offered_names:
        was_left_out = choice.name in {tool.name for tool in request.tools}
        reason = "is not served here" if was_left_out else "is not among the tools"
        raise invalid("tool_choice.name", f"{choice.name!r} {reason}")
    if not offered_names:
        raise invalid("tool_choice", "tools are needed with it")
    name = choice.name if choice.type == "tool" else ""  # "": any tool
    return ToolChoice(name, single=choice.disable_parallel_tool_use is True)


def _spec(tool: requests.WireTool, where: str) -> ToolSpec | None:
    """The tool for the model, None for one of a type that is not served.

    The tools that Anthropic defines have a version in their types: `bash_20250124`.
    """
    if tool.type in (None, "custom"):
        if not tool.name:
            raise invalid(f"{where}.name", "a tool needs a name")
        schema = NO_ARGUMENTS | (tool.input_schema or {})
        return ToolSpec(tool.name, tool.description or "", schema)
    for prefix, (description, schema) in _DEFINED.items():
        if tool.type.startswith(prefix) and tool.name:
            return ToolSpec(tool.name, description, schema)
    return None
