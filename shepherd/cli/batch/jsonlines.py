"""A conversation as JSON lines: a program on stdin, all events on stdout.

The objects in both directions are described in docs/reference/json.md. Prompts and commands are
answered in order; all other inputs act at once.
"""

import asyncio
import sys

from shepherd import errors, events, messages
from shepherd.cli.batch import oneshot, protocol
from shepherd.cli.terminal.lines import read_lines
from shepherd.conversation.commands import table
from shepherd.conversation.commands.present import set_mode
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.own_commands import INTERRUPTED
from shepherd.tasks import end_tasks
from shepherd.turn import run_turn


async def run_json_lines(conversation: Conversation, prompt: str | None = None) -> int:
    """Answer each input until stdin ends, or only `prompt`; returns the exit code.

    Raises ShepherdError, after an `error` object, if the backend can't be loaded, and
    BrokenPipeError if stdout is closed.
    """
    writer = protocol.EventWriter(sys.stdout.buffer)
    conversation.notices.listen(writer.notice)
    answers = _Answers(conversation, writer)
    try:
        await conversation.backend()
    except errors.ShepherdError as error:
        writer.error(type(error).__name__, str(error))
        raise
    if prompt is None:
        await answers.run()
        return 0
    command = oneshot.question_command(conversation, prompt)
    if command is not None:
        return 0 if await answers.command(*command) else 1
    reason = await answers.turn(messages.Message.user(prompt))
    return oneshot.exit_code(reason, answers.denials.count)


class _Answers:
    """Prompts and commands wait for their turn; a task reads the input beside it."""

    def __init__(self, conversation: Conversation, writer: protocol.EventWriter) -> None:
        self.denials = oneshot.Denials(conversation.policy)
        self._conversation = conversation
        self._writer = writer
        self._approver = protocol.JsonApprover(writer.write)
        self._tools = conversation.tool_runner(self._approver).observed_by(self.denials)
        self._waiting = asyncio.Queue[messages.Message | protocol.CommandInput | None]()
        # `interrupt` ends the one of these that runs
        self._running_turn: asyncio.Task[events.FinishReason] | None = None
        self._own_command: asyncio.Task[str] | None = None
        self._interrupted = False
        """Whether the program ended the running turn, so that its cancelling ends nothing else."""

    async def run(self) -> None:
        """Answer prompts and commands in their order, until the input ends (None in the queue)."""
        reader = asyncio.create_task(self._read())
        try:
            while (item := await self._waiting.get()) is not None:
                if isinstance(item, protocol.CommandInput):
                    await self._named_command(item.command)
                    continue
                await self.turn(item)
                while unread := self._conversation.additions.take_all():
                    for steering in unread:  # was to join the turn, and came too late
                        await self.turn(steering.message)
            await reader  # which raises what went wrong with the input
        finally:
            reader.cancel()

    async def turn(self, prompt: messages.Message) -> events.FinishReason:
        """Answer one prompt; raises BrokenPipeError if stdout is closed."""
        reason = events.FinishReason.CANCELLED
        self._interrupted, self.denials.count = False, 0
        self._running_turn = asyncio.create_task(self._answer(prompt))
        try:
            reason = await self._running_turn
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # also if it is to end while an interrupted turn ends
            if not self._interrupted or (task is not None and task.cancelling()):
                raise  # the whole conversation is to end
        finally:
            self._running_turn = None
            self._writer.end_turn(reason, self._conversation.session.id, self.denials.count)
        if self._writer.broken:
            raise BrokenPipeError
        return reason

    async def _answer(self, prompt: messages.Message) -> events.FinishReason:
        """Run the turn of a prompt; its errors are written, and end only the turn."""
        conversation = self._conversation
        try:
            backend, message = await conversation.prepare(prompt)
        except errors.ShepherdError as error:
            self._writer.error(type(error).__name__, str(error))
            return events.FinishReason.ERROR
        try:
            outcome = await run_turn(
                conversation.session,
                message,
                backend,
                self._tools,
                self._writer.receive,
                conversation.limits,
            )
        except errors.ShepherdError:
            return events.FinishReason.ERROR  # the ERROR event has reported it
        return outcome.finish_reason

    async def _named_command(self, text: str) -> None:
        """Run the command of a line such as `/compact`; an unknown one gets an `error` object."""
        try:
            command, argument = table.named_command(text)
        except errors.ShepherdError as error:
            self._writer.error(type(error).__name__, str(error))
        else:
            await self.command(command, argument)

    async def command(self, command: table.ConversationCommand, argument: str) -> bool:
        """Run a command; False after an `error` object if it can't be done."""
        try:
            output = await self._output(command, argument)
        except errors.ShepherdError as error:
            self._writer.error(type(error).__name__, str(error))
            return False
        self._writer.write({"type": "command_result", "command": command.name, "content": output})
        return True

    async def _output(self, command: table.ConversationCommand, argument: str) -> str:
        """The output of a command; `interrupt` ends one of the user's own."""
        work = asyncio.ensure_future(table.output_of(command, self._conversation, argument))
        if command.name not in table.OWN_COMMANDS:
            return await work
        self._own_command = work
        try:
            await asyncio.wait([work])  # which does not raise if `interrupt` cancels the work
            return INTERRUPTED if work.cancelled() else work.result()
        finally:
            self._own_command = None
            await end_tasks(work)

    async def _read(self) -> None:
        """Take the lines of stdin until it ends; then no question can be answered any more."""
        lines = read_lines(oneshot.STDIN)
        number = 0
        try:
            while (line := await lines.get()) is not None:
                number += 1
                await asyncio.sleep(0)  # what this line may end or join begins before it
                try:
                    await self._take(protocol.parse_input(line))
                except protocol.InputError as error:
                    self._writer.bad_input(number, line, error)
        finally:
            self._approver.close()
            self._waiting.put_nowait(None)  # ends `run`

    def _interrupt(self) -> None:
        """End the user's own command or the turn, whichever runs; nothing if neither does."""
        if self._own_command is not None:
            self._own_command.cancel()
        elif self._running_turn is not None:
            self._interrupted = True
            self._running_turn.cancel()

    async def _take(self, item: protocol.Input | None) -> None:
        """Act on an input at once, or let it wait for its turn."""
        match item:
            case protocol.SteeringInput() if self._running_turn is not None:
                self._conversation.additions.steer(item.message)
            case protocol.UserInput():
                self._waiting.put_nowait(item.message)
            case protocol.CommandInput():
                self._waiting.put_nowait(item)
            case protocol.Interrupt():
                self._interrupt()
            case protocol.ModeInput(mode):
                problem = await set_mode(self._conversation, mode)
                self._writer.system(events.Topic.MODE, mode.value)
                if problem:
                    self._writer.notice(problem)
            case protocol.ApprovalsInput(ask):
                self._approver.asks = ask
            case protocol.DecisionInput():
                self._approver.decide(item)
            case _:
                pass
