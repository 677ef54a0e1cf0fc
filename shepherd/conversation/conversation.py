"""One conversation: a session, the model that answers, tools, rules and memory."""

import asyncio
import os
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shepherd import errors, messages
from shepherd.backends.base import Backend, Lease
from shepherd.config import provider_book, secrets, settings
from shepherd.conversation import additions, history, model_slot, own_commands, session_start
from shepherd.conversation.delegates import Delegates
from shepherd.conversation.toolbox import Workspace, archive_of, offered_tools
from shepherd.mcp.hub import hub_of
from shepherd.memory.store import Place
from shepherd.session import Session
from shepherd.tasks import end_tasks
from shepherd.tools import access, consent, deferred
from shepherd.tools.permissions.approval import Approver, DenyingApprover
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.shell.background import BackgroundCommand, BackgroundCommands
from shepherd.transcript import SessionStore, SessionSummary, Transcript
from shepherd.turn import TurnLimits

if TYPE_CHECKING:
    from shepherd.mcp.questions import SamplingRequest
    from shepherd.mcp.servers import Server


class Conversation:
    """Everything that a frontend needs; made by `build_conversation`.

    The model loads on its first use, in the background after `slot.start`, so that a prompt can be
    shown earlier. A frontend that can show `notices` subscribes to them.
    """

    def __init__(
        self,
        workspace: Workspace,
        slot: Callable[["Conversation"], model_slot.ModelSlot],
        notices: session_start.Notices,
        session: session_start.CurrentSession,
        transcript: Transcript | None,
        sessions: SessionStore,
    ) -> None:
        self.background = BackgroundCommands(self._command_ended)
        self._workspace = replace(workspace, background=self.background)
        self.paths = workspace.paths
        self.cwd = workspace.cwd
        self.policy = workspace.policy
        self.sandbox = workspace.sandbox
        self.registry = workspace.registry
        self.memory = workspace.memory
        self.servers = workspace.servers
        self.knowledge = workspace.knowledge
        self.notices = notices
        self._current = session
        self.transcript = transcript
        self.sessions = sessions
        self.own_commands = own_commands.OwnCommands(
            self.cwd,
            self.paths.spill,
            secrets.keys_in(os.environ),
            lambda: self.slot.context_size,
            offers_tool=lambda: any(t.name == access.EXECUTE_COMMAND for t in self.session.tools),
        )
        self.additions = self._additions(workspace)
        self.session.additions = self.additions
        self.history = history.SessionHistory(session, workspace.undo, self.additions)
        self._keep_files()
        # the slot tells this conversation of changes, and the delegates need the slot
        self.slot = slot(self)
        self._prompt = session_start.SystemPrompt(self.knowledge, notices)
        self._prompt.begin(
            self.session, session_start.default_system_message(self.config, self.cwd)
        )
        self.delegates = Delegates(self.slot, self.registry, session, lambda: self.limits, notices)
        # what a frontend sets: who reads of a fallback, and who answers questions
        self._when_moved: Callable[[Backend], None] | None = None
        self._approver: Approver | None = None
        self._delegate_check: asyncio.Task[None] | None = None
        self.reviews_turns = True
        """Whether the end of a turn in the mode `review` asks; else the frontend does it."""

    def _additions(self, workspace: Workspace) -> additions.Additions:
        """What goes with prompts: notes of the mode, of hooks and files, and own commands."""
        hooks, undo = workspace.hooks, workspace.undo
        return additions.Additions(
            [self.own_commands.messages],
            [
                additions.PlanNotes(self.policy, lambda: self.session.tools),
                *([hooks.session_start] if hooks else []),
                *([undo.preface] if undo else []),
                self._settle_background,
                self.own_commands.preface,
            ],
            [self._review, *([hooks.turn_end] if hooks else [])],
        )

    async def _review(self, _answer: str, _continued: int) -> str:
        """Let the user decide on what a turn in the mode `review` has changed.

        Returns the text with which the model goes on, if the user wants that.
        """
        if not self.reviews_turns:
            return ""
        reviewed = await self._workspace.tool_runner(self.config, self.approver).review()
        if reviewed.text:
            self.notices.tell(reviewed.text)
            self.additions.note(f"[{reviewed.text}]")
        return reviewed.feedback

    async def _settle_background(self) -> str:
        """Let the user decide on what commands have changed that ended when nobody could be asked.

        Returns a note for the model.
        """
        settled = await self.background.settle_waiting()
        texts = [f"Background {command.title}: {command.outcome}." for command in settled]
        for text in texts:
            self.notices.tell(text)
        return "\n".join(f"[{text}]" for text in texts)

    async def drop_review(self) -> None:
        """Forget what waits in the layer of the mode `review`; raises OSError."""
        await self._workspace.review.drop()

    @property
    def session(self) -> Session:
        """The session; `resume` changes it."""
        return self._current.session

    @property
    def config(self) -> settings.Config:
        """The settings, with the model that answers."""
        return self.slot.config

    @property
    def providers(self) -> provider_book.ProviderBook:
        """The providers that the user can switch to."""
        return self.slot.providers

    @property
    def limits(self) -> TurnLimits:
        """The limits of a turn."""
        model = self.config.model
        return TurnLimits(model.max_tokens, model.max_rounds, max_hints=model.max_hints)

    async def backend(self) -> Backend:
        """The backend, once it is loaded; raises the error that kept it from loading."""
        return await self.slot.backend()

    def when_moved(self, listener: Callable[[Backend], None]) -> None:
        """Call `listener` each time that another model replaces one that failed."""
        self._when_moved = listener

    async def provider_changed(self, name: str) -> None:
        """Update the tools for other providers; `name` has new settings."""
        await self.delegates.backends.close(name)
        await self.delegates.check()
        backend = self.slot.loaded_backend
        if backend is not None:
            self.backend_ready(backend)

    def clear(self) -> None:
        """Remove all messages, including those of sessions with delegates.

        The system message then has the current files of instructions.
        """
        self.session.clear()
        self.delegates.sessions.clear()
        backend = self.slot.loaded_backend
        if backend is not None:
            self._prompt.reread()
            self._fit_system_message(backend)

    def saved_sessions(self, limit: int) -> list[SessionSummary]:
        """The newest saved sessions of the directory that have messages."""
        return self.sessions.newest(self.cwd, limit)

    def resume(self, id: str) -> None:
        """Continue with a saved session in place of this one; permissions for this session end.

        Raises SessionError without a change if the session does not exist or is open elsewhere.
        """
        if self.sessions.find(id) == self.session.id:
            raise errors.SessionError("This session is the one you are in.")
        start = session_start.SessionStart(id=id)
        session, transcript = session_start.begin_session(
            self.config, self.sessions, self.cwd, start, self.notices, self.paths.served
        )
        previous = self.session  # what the user has set in it stays set
        session.tools, session.deferred = previous.tools, previous.deferred
        session.sampling, session.thinking = previous.sampling, previous.thinking
        session.thinking_effort = previous.thinking_effort
        if self.transcript is not None:
            self.transcript.close()
        session.archive = archive_of(session, self.memory, Place.of(self.cwd))
        session.additions = self.additions
        self._current.session, self.transcript = session, transcript
        self._prompt.begin(session, "")  # a saved message without knowledge gets none
        self._keep_files()
        self.delegates.sessions.clear()
        self.policy.end_session()

    async def prepare(self, text: str | messages.Message) -> tuple[Backend, messages.Message]:
        """The model and the message of a turn: loaded, with the servers' tools, and expanded.

        Raises the error that keeps the model from loading, and those of `prompt`.
        """
        backend = await self.slot.live_backend()
        await self.before_turn()
        return backend, await self.prompt(text)

    async def prompt(self, text: str | messages.Message) -> messages.Message:
        """The message to send for a message of the user.

        Custom commands, prompts of MCP servers and their resources are put in place of their
        names. Raises InvalidRequestError if that can't be done.
        """
        message = messages.Message.user(text) if isinstance(text, str) else text
        expanded = self.knowledge.expanded(message.content)
        if expanded is not None:
            message = replace(message, content=expanded)
        if self.servers is None or not self.servers.is_named_in(message.content):
            return message
        from shepherd.mcp.prompts import with_servers  # imports the SDK

        limit = self.config.tools.output_bytes
        return await with_servers(message, self.servers, limit, self.paths.spill)

    def _keep_files(self) -> None:
        """Keep files under the session and the number of the message during which they change."""
        undo = self._workspace.undo
        if undo is not None:
            undo.begin(self.session.id, lambda: self.session.next_number)

    def change_system_message(self, text: str) -> None:
        """Continue with another system message; the whole prompt must then be read again."""
        self.session.system_message = text
        if self.transcript is not None:
            self.transcript.system_message_changed(text)

    def tool_runner(
        self,
        approver: Approver | None = None,
        registry: ToolRegistry | None = None,
        steps: Sequence[consent.CallStep] = (),
    ) -> ToolRunner:
        """A runner of calls; without an approver, calls that need approval are denied.

        `registry` has the tools, by default those of the session's model. `steps` are the
        frontend's own, just before and after each call.
        """
        self._approver = approver or self._approver
        return self._workspace.tool_runner(self.config, approver, registry, steps)

    def add_servers(self, servers: Sequence["Server"]) -> None:
        """Use further MCP servers in this conversation only; call it before `begin`."""
        if not servers:
            return
        if not (self.config.model.tools and self.config.mcp.enabled):
            self.notices.tell("The MCP servers of the editor are not used: MCP is off.")
            return
        if self.servers is None:
            self.servers = hub_of([], self.paths, self.policy, self.sandbox, self.notices.tell)
        self.servers.add(servers)

    @property
    def approver(self) -> Approver:
        """The one that answers requests for approval; it denies them before there is a frontend."""
        return self._approver or DenyingApprover()

    def begin(self) -> None:
        """Start the MCP servers in the background; needs a running event loop."""
        if self.servers is not None:
            self.servers.begin(self._sample, self.config.tools.disabled)

    async def _sample(self, request: "SamplingRequest") -> str:
        """The model's answer to a request of an MCP server."""
        from shepherd.mcp.questions import sampled

        no_tools = self._workspace.tool_runner(self.config, None, ToolRegistry())
        return await sampled(request, await self.backend(), no_tools)

    async def before_turn(self) -> None:
        """Offer the model what the MCP servers offer by now; call it before each turn.

        Asks for consent to those of a project, and waits a little for those that are starting.
        """
        self.policy.uses.save()
        backend, servers = self.slot.loaded_backend, self.servers
        if servers is None or backend is None:
            return
        if backend.info.trained_tools is not None:  # it is offered no tools of servers
            return
        await servers.ask(self.approver)
        await servers.settled()
        changed = servers.update(self.registry)
        # a first turn without changes is offered the search, if tools may still come
        if changed or not self.session.messages:
            self._offer_added(backend, late=servers.is_starting)

    def _offer_added(self, backend: Backend, *, late: bool) -> None:
        """Offer what the servers offer by now, without a needless change of a prompt that began.

        A search reaches all tools. It is offered from the first turn if some of them come `late`.
        """
        session = self.session
        if session.messages and any(tool.name == deferred.FIND_TOOLS for tool in session.tools):
            return  # the search reaches them, and the prompt stays as the model has read it
        search = late and not session.messages
        tools = offered_tools(self.registry, self.config, backend.info, search=search)
        if not session.messages or any(tool not in session.tools for tool in tools):
            session.tools = tools

    async def _leave_model(self) -> None:
        """Close the backend; one that others use, too, need not keep this session."""
        if (backend := self.slot.loaded_backend) is not None:
            backend.note_lease(Lease(self.session.id, inf))
        await self.slot.aclose()

    async def aclose(self) -> None:
        """End the background commands, and close the backend, the transcript and the memory."""
        try:
            # their ends are not reported any more: `_command_ended` is not called from here on
            for command in self.background.all:
                if command.is_running:
                    self.notices.tell(f"Background {command.title} ends with the session.")
            for sentence in await self.background.aclose(self.paths.patches):
                self.notices.tell(sentence)
            if sentence := await self._workspace.end_review():
                self.notices.tell(sentence)
            if self._delegate_check is not None:
                await end_tasks(self._delegate_check)
            await self._leave_model()
            await self.delegates.backends.aclose()
        finally:
            self.policy.uses.save()
            if self.servers is not None:
                await self.servers.aclose()
            if self.transcript is not None:
                self.transcript.close()
            if self.memory is not None:
                await self.memory.aclose()
            if self._workspace.undo is not None:
                await self._workspace.undo.aclose()

    async def before_opening(self, provider: str) -> None:
        """Close a provider as a delegate before the slot opens it: it is not both."""
        await self.delegates.backends.close(provider)

    async def loading(self) -> None:
        """Look for providers that can be delegates, while the slot loads the model."""
        await self.delegates.check()

    def backend_ready(self, backend: Backend) -> None:
        """Offer what goes with this model, which the slot has loaded: tools and knowledge."""
        self.delegates.update(self.slot.provider_of(backend))  # it is no delegate of itself
        self.session.tools = offered_tools(self.registry, self.config, backend.info)
        if self.knowledge.step is not None:
            # a model that was trained on certain tools gets plain results, as in its training
            self.knowledge.step.enabled = backend.info.trained_tools is None
        self._fit_system_message(backend)

    def _fit_system_message(self, backend: Backend) -> None:
        """Let a session without messages have what the model's context has room for."""
        text = self._prompt.fit(self.session, backend.info.context_size)
        if text != self.session.system_message:
            self.change_system_message(text)

    def model_changed(self, backend: Backend, *, chosen: bool) -> None:
        """Forget counts of the model before: another one counts tokens differently.

        `chosen` if the user changed it, else it answers in place of one that failed.
        """
        ledger = self.session.ledger
        ledger.counts[:] = [None] * len(self.session.messages)  # None: to be counted again
        ledger.context_used, ledger.context_size = 0, backend.info.context_size
        if not chosen:  # the provider that failed may answer again later, as a delegate
            if self._delegate_check is not None:
                self._delegate_check.cancel()
            self._delegate_check = asyncio.create_task(self._check_delegates(backend))
            if self._when_moved is not None:
                self._when_moved(backend)
        if chosen and self.transcript is not None:
            self.transcript.model_changed(self.config.model.label)

    def _command_ended(self, command: BackgroundCommand) -> None:
        """Tell the user now, and the model at its next round or with the next prompt.

        A user who ends a command reads its end as the answer to that.
        """
        text = f"Background {command.title} {command.report}."
        if not command.was_killed:
            self.notices.tell(text)
        self.additions.note(f"[{text}]")

    async def _check_delegates(self, backend: Backend) -> None:
        """Offer the providers that can answer by now, unless the model has been changed."""
        await self.delegates.check()
        if backend is self.slot.loaded_backend:
            self.backend_ready(backend)
