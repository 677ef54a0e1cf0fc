"""The background commands: their list, their output, their end."""

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.errors import ToolError
from shepherd.tools.shell.background import BackgroundCommand
from shepherd.tools.shell.check import command_list

USAGE = "[output ID] [kill ID]"
OUTPUT_BYTES = 16_384


def job_commands(context: CommandContext) -> list[Command]:
    """The command."""
    jobs = _Jobs(context)
    return [Command("jobs", USAGE, "commands in the background; their output, or end one",
                    jobs.run, jobs.choices, by_words=True)]  # fmt: skip


class _Jobs:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def choices(self) -> list[str]:
        """The completions."""
        commands = self._context.conversation.background.all
        outputs = [f"output {command.id}" for command in commands]
        return [*outputs, *(f"kill {command.id}" for command in commands if command.is_running)]

    async def run(self, argument: str) -> None:
        commands = self._context.conversation.background
        action, _, number = argument.partition(" ")
        if not action:
            self._say(command_list(commands))
        elif action not in ("output", "kill") or not number.strip():
            self._context.renderer.error(f"Usage: /jobs {USAGE}")
        else:
            try:
                command = commands.find(number)
            except ToolError as error:
                self._context.renderer.error(f"{str(error)[:1].upper()}{str(error)[1:]}.")
                return
            if action == "kill":
                await commands.kill(command, by_user=True)
            self._show(command, output=action == "output")

    def _show(self, command: BackgroundCommand, *, output: bool) -> None:
        head = f"{command.title}: {command.state}"
        text = command.log.tail(OUTPUT_BYTES).text.rstrip("\n") or "(no output)"
        self._say(f"{head}\n{text}" if output else head)

    def _say(self, text: str) -> None:
        self._context.say(Text(sanitize(text)))
