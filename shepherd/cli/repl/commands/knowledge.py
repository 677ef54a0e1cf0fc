"""Skills, `/init`, and the custom commands of the user and of the project."""

from collections.abc import Iterable

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.sanitize import one_line
from shepherd.knowledge.commands import IMPROVE, INIT, CustomCommand

MAX_SUMMARY = 120
NO_SKILLS = (
    "There are no skills. A skill is a folder with a SKILL.md in ~/.config/shepherd/skills, or in "
    ".agents/skills of the project."
)


def knowledge_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    return [
        Command("skills", "", "the skills that the model can read", _Skills(context).skills),
        message_command(
            INIT, f"[{IMPROVE}]", "let the model write AGENTS.md for this directory", (IMPROVE,)
        ),
    ]


def message_command(
    name: str, usage: str, summary: str, choices: Iterable[str] | None = None
) -> Command:
    """A command whose line is sent, and which the conversation expands."""
    listed = tuple(choices or ())
    return Command(
        name,
        one_line(usage, MAX_SUMMARY),
        one_line(summary, MAX_SUMMARY),
        _never_run,
        (lambda: listed) if listed else None,
        is_message=True,
    )


def custom_command(command: CustomCommand) -> Command:
    """A custom command as an entry of the table."""
    owner = "your command" if command.of_user else "the project's command"
    return message_command(command.name, command.hint, f"{command.summary} ({owner})")


def add_custom_commands(table: CommandTable, context: CommandContext) -> None:
    """Add custom commands after all others; a notice names those whose name is taken."""
    conversation = context.conversation
    for command in conversation.knowledge.commands:
        if table.find(command.name) is None:
            table.extend([custom_command(command)])
        else:
            conversation.notices.tell(
                f"The custom command {command.name}.md is not used: /{command.name} is Shepherd's."
            )


class _Skills:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    async def skills(self, argument: str) -> None:
        knowledge = self._context.conversation.knowledge
        rows = [
            (skill.name, f"{skill.description} ({_owner(of_user=skill.of_user)})")
            for skill in knowledge.skills
        ]
        problems = [Text(one_line(problem, 300), style="quiet") for problem in knowledge.problems]
        self._context.say(two_columns(rows) if rows else Text(NO_SKILLS), *problems)


def _owner(*, of_user: bool) -> str:
    return "yours" if of_user else "the project's"


async def _never_run(argument: str) -> None:
    """The line is sent as a message."""
