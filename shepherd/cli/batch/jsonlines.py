"""A conversation as JSON lines: users on stdin, all events on stdout.

In: `{"type": "user", "content": "…", "images": […]}`, or a line of plain text. `{"type":
"interrupt"}` ends the current turn. Out: `text`, `thinking`, `tool_use`, `tool_result`, `system`,
`stats` and `error` as they happen, and `end_turn` after each turn. Inputs are answered in order.
"""

import asyncio
import sys
from dataclasses import dataclass, field

from shepherd.cli.batch.jsonprotocol import (
    EventWriter,
    InputError,
    Interrupt,
    UserInput,
    parse_input,
)
from shepherd.cli.batch.oneshot import EXIT_CODES
from shepherd.cli.terminal.lines import read_lines
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ShepherdError
from shepherd.events import FinishReason
from shepherd.messages import Message
from shepherd.turn import ToolExecutor, run_turn

STDIN = 0


async def run_json_lines(conversation: Conversation, prompt: str | None = None) -> int:
    """Answer each input until stdin ends, or only `prompt`; returns the exit code.

    Raises ShepherdError, after an `error` object, if the backend can't be loaded, and
    BrokenPipeError if stdout is closed.
    """
    writer = EventWriter(sys.stdout.buffer)
    conversation.notices.listen(writer.notice)
    answers = _Answers(conversation, writer, conversation.tool_runner())
    try:
        await conversation.backend()
    except ShepherdError as error:
        writer.error(type(error).__name__, str(error))
        raise
    if prompt is not None:
        return EXIT_CODES.get(await answers.turn(prompt), 0)
    await answers.run()
    return 0


@dataclass(slots=True)
class _Answers:
    conversation: Conversation
    writer: EventWriter
    tools: ToolExecutor
    _prompts: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue[Message | None])
    _turn: asyncio.Task[FinishReason] | None = None
    _interrupted: bool = False

    async def run(self) -> None:
        """Answer until the input ends."""
        reader = asyncio.create_task(self._read())
        try:
            while (prompt := await self._prompts.get()) is not None:
                await self.turn(prompt)
            await reader
        finally:
            reader.cancel()

    async def turn(self, prompt: str | Message) -> FinishReason:
        """Answer one prompt; raises BrokenPipeError if stdout is closed."""
        reason = FinishReason.CANCELLED
        self._interrupted = False
        self._turn = asyncio.create_task(self._answer(prompt))
        try:
            reason = await self._turn
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
        finally:
            self._turn = None
            self.writer.end_turn(reason, self.conversation.session.id)
        if self.writer.broken:
            raise BrokenPipeError
        return reason

    async def _answer(self, prompt: str | Message) -> FinishReason:
        conversation = self.conversation
        try:
            message = conversation.prompt(prompt)
        except ShepherdError as error:
            self.writer.error(type(error).__name__, str(error))
            return FinishReason.ERROR
        backend = await conversation.backend()
        await conversation.before_turn()
        try:
            outcome = await run_turn(
                conversation.session,
                message,
                backend,
                self.tools,
                self.writer.receive,
                conversation.limits,
            )
        except ShepherdError:
            return FinishReason.ERROR  # the ERROR event has reported it
        return outcome.finish_reason

    async def _read(self) -> None:
        lines = read_lines(STDIN)
        number = 0
        try:
            while (line := await lines.get()) is not None:
                number += 1
                self._take_line(number, line)
        finally:
            self._prompts.put_nowait(None)

    def _take_line(self, number: int, line: bytes) -> None:
        try:
            self._take(parse_input(line))
        except InputError as error:
            self.writer.bad_input(number, line, error)

    def _take(self, command: UserInput | Interrupt | None) -> None:
        match command:
            case UserInput():
                self._prompts.put_nowait(command.message)
            case Interrupt() if self._turn is not None:
                self._interrupted = True
                self._turn.cancel()
            case _:
                pass
