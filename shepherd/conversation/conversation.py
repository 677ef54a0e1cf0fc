"""Puts one conversation together from settings: backend, session, tools, transcript."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.cli.request import SessionStart
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import LOCAL
from shepherd.config.secrets import keys_in
from shepherd.config.settings import Config
from shepherd.conversation.delegates import OtherProviders
from shepherd.conversation.model_choice import model_from_user, with_model, with_provider
from shepherd.conversation.notices import Notices
from shepherd.conversation.policy import build_policy, build_sandbox
from shepherd.conversation.session_start import begin_session
from shepherd.conversation.toolbox import add_memory_tools, build_memory, offered_tools
from shepherd.errors import ConfigError, SessionError, ShepherdError
from shepherd.memory import ConversationArchive, Memory, Place
from shepherd.session import Session
from shepherd.tools.base import ToolContext
from shepherd.tools.permissions.approval import Approver, DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.transcript import SessionStore, Transcript
from shepherd.turn import TurnLimits

BackendOpener = Callable[[Config], Awaitable[Backend]]


@dataclass(slots=True)
class Assembly:
    """Everything that one conversation in a frontend needs; made by `assemble`.

    The backend loads when it is first asked for, in the background after `start_backend`, so
    that a prompt can be shown before. A frontend that can show `notices` listens to them.
    """

    config: Config
    paths: Paths
    cwd: Path
    session: Session
    registry: ToolRegistry
    policy: PermissionPolicy
    transcript: Transcript | None
    open_backend: BackendOpener
    notices: Notices
    providers: ProviderBook
    sandbox: Sandbox
    memory: Memory | None = None
    others: OtherProviders | None = None
    _loading: asyncio.Task[Backend] | None = None
    _when_moved: Callable[[Backend], None] | None = None

    @property
    def model_name(self) -> str:
        """The model as its backend calls it, or as configured until it is loaded."""
        backend = self.loaded_backend
        return self.config.model.label if backend is None else backend.info.id

    @property
    def loaded_backend(self) -> Backend | None:
        """The backend if it is ready, else None."""
        task = self._loading
        ready = task is not None and task.done() and not task.cancelled()
        return task.result() if task and ready and task.exception() is None else None

    @property
    def provider(self) -> str:
        """The provider that answers, "" for the local model; a fallback may have changed it."""
        return self._provider_of(self.loaded_backend)

    @property
    def fell_back(self) -> bool:
        """Whether another provider answers than the one that was chosen."""
        return self.provider != self._provider_of(None)

    @property
    def label(self) -> str:
        """What answers as the user calls it; a fallback may have changed it."""
        backend = self.loaded_backend
        return (backend.selector if backend is not None else "") or self.config.model.label

    @property
    def limits(self) -> TurnLimits:
        """The guards of a turn."""
        model = self.config.model
        return TurnLimits(model.max_tokens, model.max_rounds, max_hints=model.max_hints)

    def start_backend(self) -> asyncio.Task[Backend]:
        """Begin to load the backend, unless it is loading or there; again after a failure."""
        if self._loading is None or (self._loading.done() and self.loaded_backend is None):
            self._loading = asyncio.ensure_future(self._open_backend())
            self._loading.add_done_callback(_retrieve)
        return self._loading

    async def backend(self) -> Backend:
        """The backend, once it is loaded; raises what kept it from loading."""
        return await asyncio.shield(self.start_backend())

    def when_moved(self, listener: Callable[[Backend], None]) -> None:
        """Have `listener` called when another model answers in place of one that failed."""
        self._when_moved = listener

    async def switch_model(self, name: str) -> Backend:
        """Go on with another model: of the provider that answers now, or a local one.

        `name` as on the command line: see `model_from_user`. Otherwise as `switch_provider`.
        """
        current = with_provider(self.config, self.provider)
        return await self._switch(with_model(current, model_from_user(name, self.cwd)))

    async def switch_provider(self, selector: str) -> Backend:
        """Go on with the same conversation at another provider, or locally for LOCAL.

        Where both models are local the old one is closed first: two may not fit into memory. When
        the new one can't be opened the old one goes on and the error is raised.
        """
        name = "" if selector == LOCAL else selector
        if name:
            self.providers.pick(name)
        return await self._switch(with_provider(self.config, name))

    async def provider_changed(self, name: str) -> None:
        """Have the model ask the providers that there are now, and `name` by its new settings."""
        if self.others is not None:
            await self.others.close(name)
        backend = self.loaded_backend
        if backend is not None:
            self._offer_tools(backend)

    async def reload(self) -> Backend:
        """Open the same model again, after it has failed for good."""
        return await self._switch(self.config)

    async def _switch(self, config: Config) -> Backend:
        before, loading = self.config, self._loading
        if self._is_local(before) and self._is_local(config):
            await _end(loading)
            loading = None
        self.config, self._loading = config, None
        try:
            if self.others is not None:
                await self.others.close(config.model.provider.partition("/")[0])
            backend = await self.backend()
        except (ShepherdError, asyncio.CancelledError):
            failed, self.config, self._loading = self._loading, before, loading
            await _end(failed)
            if loading is None:
                self.start_backend()
            elif (kept := self.loaded_backend) is not None:
                self._offer_tools(kept)
            raise
        await _end(loading)
        self._forget_counts(backend)
        if self.transcript is not None:
            self.transcript.model_changed(config.model.label)
        return backend

    def _is_local(self, config: Config) -> bool:
        try:
            return self.providers.is_local(config.model.provider)
        except ConfigError:  # it was removed meanwhile
            return False

    def resume(self, id: str) -> None:
        """Go on with a saved session in place of this one; what was allowed for this one ends.

        Raises SessionError, and stays here, when there is none or it is open elsewhere.
        """
        if SessionStore(self.paths.sessions).find(id).stem == self.session.id:
            raise SessionError("This session is the one you are in.")
        start = SessionStart(id=id)
        session, transcript = begin_session(self.config, self.paths, self.cwd, start, self.notices)
        left = self.session
        session.tools, session.sampling, session.thinking = left.tools, left.sampling, left.thinking
        if self.transcript is not None:
            self.transcript.close()
        session.archive = archive_of(session, self.memory, Place.of(self.cwd))
        self.session, self.transcript = session, transcript
        self.policy.end_session()

    def change_system_message(self, text: str) -> None:
        """Go on under another system message, which costs a new prefill of everything."""
        self.session.system_message = text
        if self.transcript is not None:
            self.transcript.system_message_changed(text)

    def tool_runner(self, approver: Approver | None = None) -> ToolRunner:
        """Runs the session's calls; without an approver, what needs approval is denied."""
        return ToolRunner(
            self.registry,
            self.policy,
            approver or DenyingApprover(),
            tool_context(self.config, self.paths, self.cwd, self.sandbox),
        )

    async def aclose(self) -> None:
        """Free the backend and close what is kept."""
        try:
            await self._close_backend()
            if self.others is not None:
                await self.others.aclose()
        finally:
            if self.transcript is not None:
                self.transcript.close()
            if self.memory is not None:
                await self.memory.aclose()

    async def _open_backend(self) -> Backend:
        backend = await self.open_backend(self.config)
        backend.when_moved(partial(self._moved, backend))
        self._offer_tools(backend)
        return backend

    def _moved(self, backend: Backend) -> None:
        """Another provider answers from now on, with another model."""
        self._offer_tools(backend)
        self._forget_counts(backend)
        if self._when_moved is not None:
            self._when_moved(backend)

    def _offer_tools(self, backend: Backend) -> None:
        if self.others is not None:
            self.others.update(self._provider_of(backend))
        self.session.tools = offered_tools(self.registry, self.config, backend.info)

    def _forget_counts(self, backend: Backend) -> None:
        ledger = self.session.ledger
        ledger.counts[:] = [None] * len(self.session.messages)
        ledger.context_used, ledger.context_size = 0, backend.info.context_size

    def _provider_of(self, backend: Backend | None) -> str:
        selector = backend.selector if backend is not None else ""
        return (selector or self.config.model.provider).partition("/")[0]

    async def _close_backend(self) -> None:
        task, self._loading = self._loading, None
        await _end(task)


def assemble(
    config: Config,
    env: Mapping[str, str],
    cwd: Path,
    start: SessionStart,
    open_backend: BackendOpener,
    providers: ProviderBook | None = None,
) -> Assembly:
    """Build the conversation that `start` names; raises SessionError, ConfigError."""
    paths = Paths.from_env(env)
    place = Place.of(cwd)
    notices = Notices()
    memory = build_memory(config, paths, notices)
    registry = build_registry(config)
    add_memory_tools(registry, config, memory, place)
    for warning in config.warnings:
        notices.tell(warning)
    session, transcript = begin_session(config, paths, cwd, start, notices)
    session.archive = archive_of(session, memory, place)
    session.tools = offered_tools(registry, config, None)
    session.sampling = config.sampling.to_sampling()
    session.thinking = config.model.thinking
    assembly = Assembly(
        config=config,
        paths=paths,
        cwd=cwd,
        session=session,
        registry=registry,
        policy=build_policy(config, paths, cwd),
        transcript=transcript,
        open_backend=open_backend,
        notices=notices,
        providers=providers or ProviderBook(paths, env),
        sandbox=build_sandbox(config),
        memory=memory,
    )
    assembly.others = OtherProviders(assembly)
    return assembly


def archive_of(session: Session, memory: Memory | None, place: Place) -> ConversationArchive | None:
    """What takes the messages that leave `session`, if there is a memory."""
    return ConversationArchive(memory, session.id, place) if memory is not None else None


def build_registry(config: Config) -> ToolRegistry:
    """The tools that are switched on."""
    if not config.model.tools:
        return ToolRegistry()
    everything = default_registry()
    tools = (everything.get(name) for name in everything.names if name not in config.tools.disabled)
    return ToolRegistry(tool for tool in tools if tool is not None)


def tool_context(config: Config, paths: Paths, cwd: Path, sandbox: Sandbox) -> ToolContext:
    """Where and under which limits tools run."""
    return ToolContext(
        cwd=cwd,
        spill_dir=paths.spill,
        timeout=config.tools.timeout,
        output_bytes=config.tools.output_bytes,
        allow_private_hosts=config.tools.allow_private_hosts,
        secrets=keys_in(os.environ),
        sandbox=sandbox,
    )


async def _end(task: asyncio.Task[Backend] | None) -> None:
    """Stop loading a backend, or close it if it is there."""
    if task is None:
        return
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().aclose()


def _retrieve(task: asyncio.Task[Backend]) -> None:
    """Mark the failure as seen: whoever asks for the backend gets it."""
    if not task.cancelled():
        task.exception()
