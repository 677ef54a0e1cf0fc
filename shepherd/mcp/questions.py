"""The requests of servers during a call: forms for the user, and answers of the model."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from msgspec import Struct

from shepherd import errors, events, json_text
from shepherd.backends.base import Backend
from shepherd.messages import Message, Role
from shepherd.session import Session
from shepherd.tools.text import plain_text
from shepherd.tools.tool import FieldChoices, ToolContext
from shepherd.turn import ToolExecutor, TurnLimits, run_turn


class SamplingRequest(Struct, frozen=True):
    """A conversation that a server wants the model to continue."""

    system_message: str
    messages: tuple[Message, ...]
    max_tokens: int


Sampler = Callable[[SamplingRequest], Awaitable[str]]
"""The model's answer; raises ShepherdError."""


async def sampled(request: SamplingRequest, backend: Backend, no_tools: ToolExecutor) -> str:
    """The answer of a backend, in a session of its own and without tools."""
    *earlier, prompt = request.messages
    session = Session(request.system_message, earlier)
    limits = TurnLimits(request.max_tokens, max_rounds=1, max_hints=0)
    await run_turn(session, prompt, backend, no_tools, events.ignore_events, limits)
    last = session.messages[-1]
    if last.role is not Role.ASSISTANT:
        raise errors.InvalidRequestError("the model gave no answer")
    return last.content


MAX_QUESTIONS = 10
"""The maximum number of requests of a server during one call."""
MAX_SAMPLED_TOKENS = 4096
_MAX_SAMPLED_CHARACTERS = 100_000
_MAX_FIELDS = 20
_MAX_SHOWN = 4000
_DECLINED = types.ElicitResult(action="decline")

Values = dict[str, str | int | float | bool | list[str] | None]


class _Caller(Struct):
    """A running call; its time stands still while the user is asked."""

    context: ToolContext
    deadline: asyncio.Timeout
    questions: int = 0
    """How many the server has had the user answer during the call."""


class Questions:
    """Answers the requests of one server; without a running call they are refused."""

    def __init__(self, server: str, sampler: Callable[[], Sampler | None]) -> None:
        self._server = server
        self._sampler = sampler
        self._running_calls: list[_Caller] = []

    @asynccontextmanager
    async def during(self, context: ToolContext, seconds: float) -> AsyncGenerator[None]:
        """A call, whose user is asked; raises TimeoutError after `seconds` without questions."""
        async with asyncio.timeout(seconds) as deadline:
            caller = _Caller(context, deadline)
            self._running_calls.append(caller)
            try:
                yield
            finally:
                self._running_calls.remove(caller)

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The user's answer to a form; an address is shown, and never opened."""
        text = plain_text(params.message)[:_MAX_SHOWN]
        if isinstance(params, types.ElicitRequestURLParams):
            question = f"{text}\n\nOpen this address yourself if you trust it:\n{params.url}"
            values = await self._ask("visit an address", question)
            return types.ElicitResult(action="decline" if values is None else "accept")
        properties = json_text.as_object(params.requested_schema.get("properties"))
        if len(properties) > _MAX_FIELDS:
            return _DECLINED
        fields = tuple(_label(name, part) for name, part in properties.items())
        choices = tuple(_choices(part) for part in properties.values())
        values = await self._ask("answer a form", text, fields, choices)
        if values is None or len(values) != len(fields):  # a program may just say yes
            return _DECLINED
        try:
            content = _content(params.requested_schema, properties, values)
        except ValueError:
            return _DECLINED
        return types.ElicitResult(action="accept", content=content)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """The model's answer, after the user has seen the request."""
        sampler, request = self._sampler(), _request(params)
        if sampler is None or request is None:
            return _refusal("this request can't be answered here")
        texts = [f"{message.role}: {message.content}" for message in request.messages]
        question = "\n".join([request.system_message, *texts]).strip()[:_MAX_SHOWN]
        if await self._ask("use your model", question) is None:
            return _refusal("the user refused")
        try:
            answer = await sampler(request)
        except errors.ShepherdError as error:
            return _refusal(str(error))
        content = types.TextContent(type="text", text=answer)
        return types.CreateMessageResult(role="assistant", content=content, model="shepherd")

    async def _ask(
        self, purpose: str, text: str, fields: Sequence[str] = (), choices: FieldChoices = ()
    ) -> tuple[str, ...] | None:
        """The user's values; None if the user refuses, or if there is nobody to ask.

        The question counts for the newest call, since a server does not say for which it asks.
        """
        call = self._running_calls[-1] if self._running_calls else None
        if call is None or call.questions >= MAX_QUESTIONS:
            return None
        call.questions += 1
        loop, deadline = asyncio.get_running_loop(), call.deadline.when()
        seconds_left = (deadline or loop.time()) - loop.time()
        call.deadline.reschedule(None)  # the user may think for as long as they like
        try:
            title = f"the MCP server {self._server} asks you to {purpose}"
            return await call.context.ask_user(title, text, tuple(fields), choices)
        finally:
            if call in self._running_calls:  # it has not ended meanwhile
                # the server needs at least a moment to use the answer
                call.deadline.reschedule(loop.time() + max(seconds_left, 1.0))


def _request(params: types.CreateMessageRequestParams) -> SamplingRequest | None:
    """The request, None if it has other content than text, or too much."""
    messages: list[Message] = []
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        for block in blocks:
            if not isinstance(block, types.TextContent):
                return None
            new_message = Message.assistant if message.role == "assistant" else Message.user
            messages.append(new_message(plain_text(block.text)))
    system = plain_text(params.system_prompt or "")
    length = len(system) + sum(len(message.content) for message in messages)
    ends_with_prompt = bool(messages) and messages[-1].role is Role.USER
    if not ends_with_prompt or length > _MAX_SAMPLED_CHARACTERS:
        return None
    return SamplingRequest(system, tuple(messages), min(params.max_tokens, MAX_SAMPLED_TOKENS))


def _refusal(reason: str) -> types.ErrorData:
    return types.ErrorData(code=-1, message=f"Refused: {reason}.")


def _label(name: str, part: Mapping[str, Any]) -> str:
    """The question for one field: `age (integer, empty = 7)`."""
    about = ", ".join(_choices(part)) or part.get("type", "text")
    if part.get("type") == "boolean":
        about = "yes or no"
    default = f", empty = {part['default']}" if "default" in part else ""
    return plain_text(f"{part.get('title') or name} ({about}{default})")[:200]


def _choices(part: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts that a field accepts, none for any text."""
    if part.get("type") == "boolean":
        return ("yes", "no")
    return tuple(map(str, json_text.as_list(part.get("enum"))))


def _content(
    schema: Mapping[str, Any], properties: Mapping[str, Mapping[str, Any]], texts: Sequence[str]
) -> Values:
    """The typed values of the form; raises ValueError for one that does not fit."""
    result: Values = {}
    for (name, part), text in zip(properties.items(), texts, strict=True):
        if text.strip():
            result[name] = _value(part, text.strip())
        elif "default" in part:
            result[name] = part["default"]
        elif name in json_text.as_list(schema.get("required")):
            raise ValueError(f"{name} is empty")
    return result


def _value(part: Mapping[str, Any], text: str) -> str | int | float | bool:
    """The user's text in the type of its field; raises ValueError for one that does not fit."""
    choices = part.get("enum")
    if isinstance(choices, list) and text not in json_text.as_list(choices):
        raise ValueError(f"{text} is not one of the choices")
    match part.get("type"):
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            if text.lower() not in ("y", "yes", "true", "n", "no", "false"):
                raise ValueError(f"{text} is neither yes nor no")
            return text.lower() in ("y", "yes", "true")
        case _:
            return text
