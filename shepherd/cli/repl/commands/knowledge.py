"""Skills, `/init`, and the custom commands of the user and of the project."""

from typing import TYPE_CHECKING

from rich.text import Text

from shepherd.cli.repl.commands.base import Command, CommandContext, CommandTable
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.sanitize import one_line
from shepherd.knowledge.init import IMPROVE, INIT_SUMMARY

if TYPE_CHECKING:
    from shepherd.knowledge.commands import CustomCommand

MAX_SUMMARY = 120
NO_SKILLS = (
    "There are no skills. A skill is a folder with a SKILL.md in ~/.config/shepherd/skills, or in "
    ".agents/skills of the project."
)


async def do_nothing(argument: str) -> None:
    """Nothing: the line is sent as a message."""


def knowledge_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    return [
        Command("skills", "", "the skills that the model can read", _Skills(context).skills),
        Command(
            "init",
            f"[{IMPROVE}]",
            INIT_SUMMARY,
            do_nothing,
            lambda: (IMPROVE,),
            is_message=True,
        ),
    ]


def custom_command(command: "CustomCommand") -> Command:
    """A custom command as an entry of the table; its line is sent."""
    owner = "your command" if command.of_user else "the project's command"
    return message_command(command.name, command.hint, f"{command.summary} ({owner})")


def message_command(name: str, hint: str, summary: str) -> Command:
    """A command whose line the conversation expands."""
    usage, summary = one_line(hint, MAX_SUMMARY), one_line(summary, MAX_SUMMARY)
    return Command(name, usage, summary, do_nothing, is_message=True)


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
