"""What the terminal adds to the commands of a conversation: questions, and choices to complete."""

from collections.abc import Iterator, Sequence
from functools import partial

from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.turns import note_mode
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.cli.terminal.sanitize import one_line
from shepherd.conversation.commands.command import Diff, Offer, Words, parse_words
from shepherd.conversation.commands.past import CONVERSATION, FILES, FORCE, compact_turns
from shepherd.conversation.commands.present import KEEP, KILL, MCP_ACTIONS, OUTPUT
from shepherd.conversation.commands.table import COMMANDS, ConversationCommand, find_command
from shepherd.errors import InvalidRequestError, UndoError

MAX_NAMES = 5
MAX_TITLE = 60


class Pickers:
    """The commands of the conversation, with questions where one of them needs an answer."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._conversation = context.conversation

    def commands(self) -> Iterator[Command[str]]:
        """All of them: some run with questions, some have more choices to complete."""
        runs = {
            "approve": self._approve,
            "clear": self._clear,
            "compact": self._compact,
            "rewind": self._rewind,
            "tree": self._tree,
        }
        choices = {"jobs": self._job_choices, "mcp": self._server_choices}
        for command in COMMANDS.values():
            yield Command(
                command.name,
                command.usage,
                command.summary,
                runs.get(command.name) or partial(self._run, command),
                choices.get(command.name) or command.choices,
                command.by_words,
                beside=command.beside,
            )

    async def _run(self, command: ConversationCommand, argument: str) -> None:
        """Run a command without questions, and show its output."""
        await self._try(command, argument)

    async def _try(self, command: ConversationCommand, argument: str) -> bool:
        """Run a command and show its output; returns False for a refusal.

        A refusal is shown with its diffs, and how to force it.
        """
        try:
            lines = await command.run(self._conversation, argument)
        except UndoError as error:
            for diff in error.details:  # what would be overwritten
                self._context.show([Diff(diff)])
            hint = f" /{command.name} … force overwrites it." if error.details else ""
            self._context.renderer.error(f"{error}{hint}")
            return False
        self._context.show(lines or ())
        return True

    async def _approve(self, argument: str) -> None:
        """Set the mode, which the status line shows."""
        await self._try(COMMANDS["approve"], argument)
        note_mode(self._conversation.policy, self._context.status)

    async def _clear(self, argument: str) -> None:
        """Forget the conversation, of which the status line shows the size."""
        await self._try(COMMANDS["clear"], argument)
        self._context.status.context_used = 0

    async def _compact(self, argument: str) -> None:
        """Show the progress, and ask about each fact that the model would keep."""
        renderer = self._context.renderer
        renderer.activity.start("summarising")
        try:
            lines = await compact_turns(self._conversation, argument, renderer)
        finally:
            renderer.activity.stop()
        self._context.show(lines)
        await self._context.show_use()
        for offer in (line for line in lines if isinstance(line, Offer)):
            call = find_command(offer.command)  # the command and its argument
            if call is not None and await self._agrees(one_line(offer.question, 200)):
                await self._try(*call)

    async def _rewind(self, argument: str) -> None:
        """Go back to the message with a number, and put it into the prompt, to be edited.

        Without an argument, the list is shown, and the user is asked for a number.
        """
        history, command = self._conversation.history, COMMANDS["rewind"]
        prompts = history.prompts()
        if not (argument and prompts):
            await self._try(command, "")  # the list, or that there is nothing to go back to
        if not prompts:
            return
        argument = argument or await self._context.surface.ask_text("Back to message number: ")
        if not argument.strip():
            return
        words = parse_words(command.name, argument, FILES, CONVERSATION, FORCE)
        if not words.number:
            raise InvalidRequestError("/rewind takes a number from the list.")
        changed = await history.files_since(words.number)  # raises if it is not in the list
        chosen = prompts[words.number - 1].message
        if await self._try(command, await self._with_files(words, changed)):
            self._context.surface.restore(without_attachments(chosen.content))
            await self._context.show_use()

    async def _tree(self, argument: str) -> None:
        """Go to a branch, and show where it ends; any other argument is for the command."""
        history, command = self._conversation.history, COMMANDS["tree"]
        words = parse_words(command.name, argument, FILES, CONVERSATION, FORCE)
        branches = history.branches()
        if not 0 < words.number < len(branches):  # 0: without a number; the list, or an error
            await self._try(command, argument)
            return
        changed = await history.files_at(branches[words.number].number)
        if await self._try(command, await self._with_files(words, changed)):
            messages = self._conversation.session.messages
            show_last_exchanges(messages, self._context.renderer)
            await self._context.show_use()

    async def _with_files(self, words: Words, changed: Sequence[str]) -> str:
        """The argument for a command that goes back: `3 files` takes the changed files along.

        The user decides on the files, unless the options of `words` do.
        """
        options = words.options - {FILES, CONVERSATION}
        if changed and CONVERSATION not in words.options:
            names = ", ".join(one_line(name, MAX_TITLE) for name in changed[:MAX_NAMES])
            left_out = len(changed) - MAX_NAMES
            more = f" and {left_out} more" if left_out > 0 else ""
            question = f"Changed since: {names}{more}. Take the files back too?"
            if FILES in words.options or await self._agrees(question):
                options |= {FILES}
        return " ".join([str(words.number), *options])

    async def _agrees(self, question: str) -> bool:
        """Whether the user says yes; anything else means no."""
        answer = await self._context.surface.ask_text(f"{question} (y/n) ")
        return answer.strip().lower() in ("y", "yes")

    def _job_choices(self) -> list[str]:
        """What `/jobs` completes: the output of each, and the end of each that runs."""
        commands = self._conversation.background.all
        outputs = [f"{OUTPUT} {command.id}" for command in commands]
        open_ones = [command for command in commands if command.is_running or command.waits]
        actions = [f"{action} {command.id}" for action in (KEEP, KILL) for command in open_ones]
        return [*outputs, *actions]

    def _server_choices(self) -> list[str]:
        """What `/mcp` completes: the actions, and each of them with each server."""
        hub = self._conversation.servers
        names = [entry.name for entry in hub.entries] if hub else []
        return [*MCP_ACTIONS, *(f"{action} {name}" for action in MCP_ACTIONS for name in names)]
