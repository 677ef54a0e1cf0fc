"""One session of an editor: a conversation of its own, and its running turn."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from acp import RequestError
from acp.helpers import text_block, update_agent_message, update_available_commands
from acp.interfaces import Client
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    PromptResponse,
    SessionMode,
    SessionModeState,
    StopReason,
    UnstructuredCommandInput,
    Usage,
)

from shepherd.cli.acp.approvals import EditorApprover, EditorStep
from shepherd.cli.acp.prompt import Block, Prompt, build_message, read_blocks
from shepherd.cli.acp.serve import INVALID_REQUEST
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.config.choices import ApproveMode
from shepherd.conversation.commands.present import MODE_TEXT
from shepherd.conversation.commands.table import (
    COMMANDS,
    ConversationCommand,
    find_command,
    output_of,
)
from shepherd.conversation.conversation import Conversation
from shepherd.events import FinishReason
from shepherd.knowledge.commands import INIT, INIT_SUMMARY
from shepherd.tools.text import one_line
from shepherd.turn import TurnOutcome, run_turn

_STOP_REASONS: dict[FinishReason, StopReason] = {
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CANCELLED: "cancelled",
    FinishReason.ERROR: "max_turn_requests",
}


@dataclass(frozen=True, slots=True)
class EditorAbilities:
    """The parts of the protocol that an editor has."""

    reads: bool = False
    forms: bool = False


class EditorSession:
    """A conversation that an editor shows; `resources` are closed with it.

    `abilities` tell whether the editor knows its unsaved files, and whether it can show forms.
    """

    def __init__(
        self,
        conversation: Conversation,
        resources: AsyncExitStack,
        client: Client,
        updates: SessionUpdates,
        *,
        abilities: EditorAbilities,
    ) -> None:
        self.conversation = conversation
        self.updates = updates
        self._resources = resources
        self._approver = EditorApprover(client, updates, has_forms=abilities.forms)
        self._step = EditorStep(client, updates, abilities.reads)
        self._tools = conversation.tool_runner(self._approver)
        self._tools.steps = (*self._tools.steps, self._step)
        self._approver.runner = self._tools
        self._turn: asyncio.Task[PromptResponse] | None = None
        self._cancelled = False

    def begin_soon(self) -> None:
        """Show the notices so far and the commands, right after the answer to this request.

        An editor does not know the session before the answer.
        """
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self.conversation.notices.listen(self.updates.notice)
        knowledge = self.conversation.knowledge
        own = [_available(c.name, _sentence(c.summary), c.usage) for c in COMMANDS.values()]
        own.append(_available(INIT, _sentence(INIT_SUMMARY), ""))
        custom = [
            _available(c.name, one_line(c.summary), one_line(c.hint))
            for c in knowledge.commands
            if c.name not in COMMANDS
        ]
        self.updates.send(update_available_commands([*own, *custom]))

    @property
    def is_busy(self) -> bool:
        """Whether a prompt is being answered."""
        return self._turn is not None

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """Answer a prompt; raises RequestError, and ShepherdError if the model can't answer."""
        if self._turn is not None:
            text = "This session is answering another prompt; wait for its end, or cancel it."
            raise RequestError(INVALID_REQUEST, text)
        prompt = read_blocks(blocks, self.conversation.cwd)
        self._cancelled = False
        self._turn = asyncio.create_task(self._respond(prompt))
        try:
            return await self._turn
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return PromptResponse(stop_reason="cancelled")
        finally:
            self._turn = None
            self.updates.end_turn()

    def cancel(self) -> None:
        """Stop the running turn, if there is one."""
        if self._turn is not None:
            self._cancelled = True
            self._turn.cancel()

    async def aclose(self) -> None:
        """Stop the turn and close the conversation."""
        turn = self._turn
        self.cancel()
        if turn is not None:
            await asyncio.wait([turn])
        await self._resources.aclose()

    async def _respond(self, prompt: Prompt) -> PromptResponse:
        command = find_command(prompt.text)
        if command is not None and not (prompt.attached or prompt.images):
            return await self._run_command(*command)
        conversation, updates = self.conversation, self.updates
        backend = await conversation.live_backend()
        message = await build_message(prompt, conversation, self._approver, backend)
        backend, message = await conversation.prepare(message)
        updates.end_turn()  # calls that read attached files, and questions about servers
        outcome = await run_turn(
            conversation.session,
            message,
            backend,
            self._tools,
            updates.receive,
            conversation.limits,
        )
        return self._response(outcome)

    async def _run_command(self, command: ConversationCommand, argument: str) -> PromptResponse:
        text = await output_of(command, self.conversation, argument)
        self.updates.send(update_agent_message(text_block(text)))
        return PromptResponse(stop_reason="end_turn")

    def _response(self, outcome: TurnOutcome) -> PromptResponse:
        if outcome.finish_reason is FinishReason.ERROR:
            self.updates.send(update_agent_message(text_block(f"\n\n{self.updates.problem}")))
        return PromptResponse(
            stop_reason=_STOP_REASONS.get(outcome.finish_reason, "end_turn"),
            usage=_usage(outcome),
        )


def _sentence(summary: str) -> str:
    return f"{summary[:1].upper()}{summary[1:]}"


def _available(name: str, description: str, hint: str) -> AvailableCommand:
    text = AvailableCommandInput(UnstructuredCommandInput(hint=hint))
    return AvailableCommand(name=name, description=description, input=text if hint else None)


def _usage(outcome: TurnOutcome) -> Usage:
    read = sum(stats.prompt_tokens for stats in outcome.stats)
    written = sum(stats.completion_tokens for stats in outcome.stats)
    return Usage(
        total_tokens=read + written,
        input_tokens=read,
        output_tokens=written,
        cached_read_tokens=sum(stats.cached_tokens for stats in outcome.stats),
    )


def mode_state(conversation: Conversation) -> SessionModeState:
    """All modes, and the current one."""
    modes = [
        SessionMode(id=mode.value, name=mode.value.capitalize(), description=MODE_TEXT[mode])
        for mode in ApproveMode
    ]
    return SessionModeState(current_mode_id=conversation.policy.mode.value, available_modes=modes)
