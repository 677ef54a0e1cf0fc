"""A request of the Messages API as a `Session`."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shepherd.backends.base import ModelInfo
from shepherd.messages import Message, Role, ToolCall
from shepherd.sampling import Sampling
from shepherd.server.anthropic.blocks import (
    Block,
    Call,
    Redacted,
    Result,
    ServerToolBlock,
    Thinking,
    joined,
)
from shepherd.server.anthropic.requests import PromptRequest, WireMessage
from shepherd.server.anthropic.thoughts import Thoughts
from shepherd.server.anthropic.tools import offered_tools, tool_choice
from shepherd.server.errors import ApiError, invalid, unsupported
from shepherd.server.wire.content import Content
from shepherd.server.wire.translation import effort_named
from shepherd.session import Session
from shepherd.structure import OutputFormat

logger = logging.getLogger(__name__)

_NO_THREADS = "thread_unsupported_request"
"""Anthropic's clients know this code, and then send the whole conversation."""

ERROR_PREFIX = "Error:"
"""What the result of a failed call begins with, here and for all backends."""


def session_of(
    request: PromptRequest, thoughts: Thoughts, model: ModelInfo, *, thinking: bool
) -> Session:
    """The conversation of a request; `thinking` is the default.

    Raises ApiError for parameters that would change the answer and are not supported, and for
    reasoning that this server has not signed.
    """
    _check_supported(request)
    tools = offered_tools(request)
    messages = _Conversation(thoughts, model).messages(request.messages)
    leading = _leading_system(messages)
    texts = (request.system, *(message.content for message in messages[:leading]))
    messages = messages[leading:]
    return Session(
        system_message="\n\n".join(text for text in texts if text),
        messages=messages,
        tools=tools,
        sampling=_sampling(request),
        thinking=_wants_thinking(request, default=thinking),
        thinking_budget=request.thinking.budget_tokens if request.thinking else None,
        thinking_effort=effort_named(request.output_config and request.output_config.effort),
        tool_choice=tool_choice(request, tools),
        output_format=_output_format(request),
        continues=bool(messages) and messages[-1].role is Role.ASSISTANT,
    )


def _check_supported(request: PromptRequest) -> None:
    if request.mcp_servers:
        raise unsupported("mcp_servers", "mcp_servers are not served; give the tools themselves.")
    if request.container:
        raise unsupported("container", "container is not served: code does not run here.")
    if request.compaction:
        raise unsupported("compaction", "compaction is not served: ask for a summary.")
    if request.thread:
        message = "thread is not served: send the whole conversation without it."
        raise ApiError(400, message, _NO_THREADS, "thread")


def _leading_system(messages: Sequence[Message]) -> int:
    """How many messages of the role system the conversation begins with."""
    roles = (index for index, m in enumerate(messages) if m.role is not Role.SYSTEM)
    return next(roles, len(messages))


def _wants_thinking(request: PromptRequest, *, default: bool) -> bool:
    if request.thinking is None:
        return default
    return request.thinking.type in ("enabled", "adaptive")


def _output_format(request: PromptRequest) -> OutputFormat | None:
    config = request.output_config
    output_format = (config.format if config is not None else None) or request.output_format
    return None if output_format is None else OutputFormat(output_format.schema_)


def _sampling(request: PromptRequest) -> Sampling:
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        stop=tuple(request.stop_sequences) if request.stop_sequences else None,
    )


@dataclass(slots=True)
class _Conversation:
    """Translates messages in their order; results get the name of the tool they answer."""

    thoughts: Thoughts
    model: ModelInfo
    names: dict[str, str] = field(default_factory=dict[str, str])

    def messages(self, wire: Sequence[WireMessage]) -> list[Message]:
        """The messages; raises ApiError for one that is not possible."""
        result: list[Message] = []
        for index, message in enumerate(wire):
            where = f"messages.{index}.content"
            result += (
                [self._assistant(message.content, where)]
                if message.role == "assistant"
                else self._user(message, where)
            )
        last = result[-1] if result else None
        if last is not None and last.role is Role.ASSISTANT and last.tool_calls:
            where = f"messages.{len(wire) - 1}"
            raise invalid(where, "the calls of the last message need their results behind them")
        return result

    def _user(self, message: WireMessage, where: str) -> Iterator[Message]:
        """The results of a message, then its text and images."""
        others: list[Content] = []
        for index, block in enumerate(message.content):
            match block:
                case Result() if message.role == "user":
                    self._check_images(block.content, f"{where}.{index}")
                    yield self._result(block)
                case str():
                    others.append(Content(block))
                case Content() if message.role == "user":
                    self._check_images(block, f"{where}.{index}")
                    others.append(block)
                case _:
                    raise _misplaced(f"{where}.{index}", message.role)
        content = _joined(others, where)
        if message.role == "system":
            if content.text:
                yield Message(Role.SYSTEM, content.text)
        elif content.text or content.images or not message.content:
            yield Message.user(content.text, content.images)

    def _result(self, block: Result) -> Message:
        name, text = self.names.get(block.call_id, ""), block.content.text
        if block.failed and not text.startswith(ERROR_PREFIX):
            text = f"{ERROR_PREFIX} {text}".rstrip()
        images = block.content.images
        return Message(Role.TOOL, text, tool_call_id=block.call_id, name=name, images=images)

    def _assistant(self, blocks: Sequence[Block], where: str) -> Message:
        texts: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        extras: list[tuple[str, str]] = []
        for index, block in enumerate(blocks):
            match block:
                case str():
                    texts.append(block)
                case Thinking():
                    reasoning.append(self._thought(block, f"{where}.{index}.signature"))
                case Redacted():
                    extras.append((block.data, f"{where}.{index}.data"))
                case Call():
                    calls.append(ToolCall(block.id, block.name, block.arguments))
                case ServerToolBlock():
                    logger.info("A block of type %.64s is left out of the history", block.type)
                case _:
                    raise _misplaced(f"{where}.{index}", "assistant")
        self.names.update((call.id, call.name) for call in calls)
        message = Message.assistant("".join(texts), "".join(reasoning), tuple(calls))
        for data, place in extras:
            message = self._with_extras(message, data, place)
        return message

    def _thought(self, block: Thinking, where: str) -> str:
        try:
            return self.thoughts.text(block.text, block.signature)
        except ValueError as error:
            raise _forged(where) from error

    def _with_extras(self, message: Message, data: str, where: str) -> Message:
        try:
            return self.thoughts.with_extras(message, data)
        except ValueError as error:
            raise _forged(where) from error

    def _check_images(self, content: Content, where: str) -> None:
        if content.images and self.model.vision is False:
            raise invalid(
                where, f"images are not supported: {self.model.id} reads text only; leave them out"
            )


def _joined(parts: Sequence[Content], where: str) -> Content:
    try:
        return joined(parts)
    except ValueError as error:
        raise invalid(where, str(error)) from error


def _forged(where: str) -> ApiError:
    return invalid(where, "it is not valid: this server has not written this reasoning")


def _misplaced(where: str, role: str) -> ApiError:
    return invalid(where, f"this block is not possible in a message of the {role}")
