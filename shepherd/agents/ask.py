"""`ask_NAME`: another provider's model answers a question, with the same tools."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import PurePath
from typing import Annotated, Protocol

from msgspec import Struct, field, structs
from pydantic import Field

from shepherd import errors, messages
from shepherd.agents.progress import LastRoundExecutor, Progress, answer_of
from shepherd.backends.base import Backend, ModelInfo
from shepherd.config.provider import Provider
from shepherd.session import Session
from shepherd.tools import access, deferred
from shepherd.tools.tool import AnyTool, Arguments, Tool, ToolContext, ToolResult, Traits
from shepherd.turn import TurnLimits, run_turn

PREFIX = "ask_"


class OtherBackends(Protocol):
    """The backends of models that can be named."""

    async def get(self, provider: str) -> Backend:
        """The backend of PROVIDER or PROVIDER/MODEL; raises ShepherdError."""
        ...


class DelegateBackends:
    """One backend for each provider in use, by the provider's name or by PROVIDER/MODEL."""

    def __init__(self, open_backend: Callable[[str], Awaitable[Backend]]) -> None:
        self._open = open_backend
        self._backends: dict[str, Backend] = {}
        self._changing = asyncio.Lock()

    async def get(self, provider: str) -> Backend:
        """The provider's backend, opened again if the last one has failed permanently.

        Raises the error of a failed start.
        """
        async with self._changing:
            backend = self._backends.get(provider)
            if backend is not None and backend.alive:
                return backend
            await self._close(provider)
            backend = self._backends[provider] = await self._open(provider)
            return backend

    async def close(self, provider: str) -> None:
        """Close the provider's backends; the next question opens a new one."""
        async with self._changing:
            provider_name = provider.partition("/")[0]
            for selector in [*self._backends]:  # PROVIDER, and each PROVIDER/MODEL
                if selector.partition("/")[0] == provider_name:
                    await self._close(selector)

    async def aclose(self) -> None:
        """Close all backends."""
        for provider in [*self._backends]:
            await self.close(provider)

    async def _close(self, selector: str) -> None:
        """Close one backend, if there is one."""
        backend = self._backends.pop(selector, None)
        if backend is not None:
            await backend.aclose()


def model_access(address: Callable[[str], str], model: str) -> list[access.Access]:
    """The access to the network that a question to a model needs; raises ToolError.

    `address` returns the URL of PROVIDER or PROVIDER/MODEL, "" if the question stays on this
    machine or network; it raises ConfigError.
    """
    try:
        url = address(model)
    except errors.ConfigError as error:
        raise errors.ToolError(str(error)) from error
    return [access.Access(access.AccessKind.NETWORK, url)] if url else []


def tool_names(providers: Iterable[str]) -> dict[str, str]:
    """A tool's name for each provider, by the provider's name; every API accepts these names.

    Names that differ only in symbols get a number at the end, which never changes.
    """
    names: dict[str, str] = {}
    for provider in sorted(providers):
        base = name = PREFIX + re.sub(r"[^a-z0-9]", "_", provider)
        number = 1
        while name in names.values():
            number += 1
            name = f"{base}_{number}"
        names[provider] = name
    return names


MAX_ROUNDS = 10
"""Maximum generations for one question, including the answer."""

SYSTEM_MESSAGE = (
    "Another model asks you for help with its work in the user's terminal. Use the tools to look "
    "before you answer. It reads only your last message: say there all that it must know. "
    "Working directory: {cwd}"
)


class AskArguments(Arguments):
    """The question, and whether to start a new conversation."""

    question: Annotated[
        str,
        Field(min_length=1, description="With all that it must know: it does not see this chat."),
    ]
    fresh: Annotated[bool, Field(description="It forgets earlier questions.")] = False


class Asking(Struct, frozen=True):
    """The parts that the tools of one conversation share.

    `session` returns the conversation, and `limits` the guards of its turns. `offer` selects the
    tools for a model. `address` returns the URL of a provider, "" if the question stays on this
    machine or network; it raises ConfigError. `sessions` are the conversations with the providers,
    by name.
    """

    backends: DelegateBackends
    session: Callable[[], Session]
    limits: Callable[[], TurnLimits]
    offer: Callable[[Iterable[AnyTool], ModelInfo], list[messages.ToolSpec]]
    address: Callable[[str], str]
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])


class AskProvider(Tool[AskArguments]):
    """Asks one provider; its session is kept with the conversation for the next question."""

    arguments = AskArguments
    traits = Traits(connects_in_plan=True)  # the model that is asked has the same rules
    calls_models = True

    def __init__(self, name: str, provider: Provider, asking: Asking) -> None:
        self.name = name
        self.provider = provider.name
        model = f" ({PurePath(provider.model).name})" if provider.model else ""
        self.description = (
            f"Ask the model of {provider.name}{model}, which has the same tools, and get its "
            "answer. It remembers earlier questions."
        )
        self._asking = asking

    def accesses(self, arguments: AskArguments, context: ToolContext) -> list[access.Access]:
        return model_access(self._asking.address, self.provider)

    def preview(self, arguments: AskArguments, context: ToolContext) -> str:
        return arguments.question

    def deadline(self, arguments: AskArguments, context: ToolContext) -> float | None:
        """None, because its calls and its requests have their own deadlines."""
        return None

    async def run(self, arguments: AskArguments, context: ToolContext) -> ToolResult:
        if context.runner is None:
            raise errors.ToolError(f"{self.name} works in a conversation only")
        try:
            backend = await self._asking.backends.get(self.provider)
        except errors.ShepherdError as error:
            raise errors.ToolError(f"{self.provider} can't be asked: {error}") from error
        caller = f"{self.provider} ({backend.info.id})"
        runner = context.runner.on_behalf_of(caller)
        session = self._session(arguments, context)
        session.tools = self._asking.offer(runner.tools, backend.info)
        session.deferred = deferred.SearchResults(runner.tools)
        progress = Progress(self.provider, context.on_event)
        limits = self._asking.limits()
        limits = structs.replace(limits, max_rounds=min(MAX_ROUNDS, limits.max_rounds))
        tools = LastRoundExecutor(runner, progress, limits.max_rounds)
        try:
            outcome = await run_turn(session, arguments.question, backend, tools, progress, limits)
        except errors.ShepherdError as error:
            if session.messages and session.messages[-1].role is messages.Role.USER:
                session.pop_last()  # the next question must not follow one without an answer
            raise errors.ToolError(f"{caller} failed: {error}") from error
        return answer_of(caller, session, outcome.finish_reason, progress.error)

    def _session(self, arguments: AskArguments, context: ToolContext) -> Session:
        """The session with the provider, with the conversation's settings of now."""
        conversation = self._asking.session()
        if arguments.fresh:
            self._asking.sessions.pop(self.provider, None)
        session = self._asking.sessions.get(self.provider)
        if session is None:
            system = SYSTEM_MESSAGE.format(cwd=context.cwd)
            session = Session(system, id=f"{conversation.id}-{self.provider}")
            self._asking.sessions[self.provider] = session
        session.archive = conversation.archive
        session.sampling, session.thinking = conversation.sampling, conversation.thinking
        return session
