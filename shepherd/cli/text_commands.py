"""The commands of a conversation for frontends without a terminal; their output is text."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shepherd.cli.terminal.attachments import without_attachments
from shepherd.conversation.compaction import compact, parse_fact, remember
from shepherd.conversation.context_use import ContextPart, measure_context, measure_tools
from shepherd.conversation.conversation import Conversation
from shepherd.errors import InvalidRequestError, UndoError
from shepherd.messages import Role
from shepherd.tools.text import one_line, pluralize
from shepherd.undo.parts import MoveResult

MAX_TITLE = 60
FILES, FORCE, TOOLS = "files", "force", "tools"

_COMMAND = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command; `run` gets the text after its name, and returns the text to show.

    `hint` describes that text, "" if there is none.
    """

    name: str
    description: str
    run: Callable[[Conversation, str], Awaitable[str]]
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """The argument of a command about the past: a number, 0 for none, and options."""

    number: int
    options: frozenset[str]


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a text calls, and its argument; None for any other text."""
    match = _COMMAND.fullmatch(text.strip())
    command = COMMANDS.get(match[1]) if match else None
    return (command, match[2] or "") if match and command else None


async def _context(conversation: Conversation, argument: str) -> str:
    backend = await conversation.backend()
    if argument not in ("", TOOLS):
        raise InvalidRequestError(f"/context takes {TOOLS} or nothing.")
    if argument:
        return _token_lines(await measure_tools(conversation.session, backend))
    use = await measure_context(conversation.session, backend)
    size = f" of {use.size}" if use.size else ""
    about = "" if use.error is None else "about "
    return f"{about}{use.used}{size} tokens:\n{_token_lines(use.parts)}"


def _token_lines(parts: Sequence[ContextPart]) -> str:
    return "\n".join(f"- {part.name}: {part.tokens}" for part in parts)


async def _clear(conversation: Conversation, _argument: str) -> str:
    conversation.clear()
    return "The conversation starts afresh."


async def _skills(conversation: Conversation, _argument: str) -> str:
    skills = conversation.knowledge.skills
    lines = [f"- {skill.name}: {one_line(skill.description)}" for skill in skills]
    return "\n".join(lines) or "There are no skills."


async def _undo(conversation: Conversation, argument: str) -> str:
    words = _words("undo", argument, FORCE)
    history, force = conversation.history, FORCE in words.options
    return await _moved("Undone", history.undo(words.number or 1, force=force))


async def _redo(conversation: Conversation, argument: str) -> str:
    words = _words("redo", argument, FORCE)
    history, force = conversation.history, FORCE in words.options
    return await _moved("Made again", history.redo(words.number or 1, force=force))


async def _diff(conversation: Conversation, _argument: str) -> str:
    return await conversation.history.diff() or "No file has changed."


async def _rewind(conversation: Conversation, argument: str) -> str:
    words = _words("rewind", argument, FILES, FORCE)
    history, options = conversation.history, words.options
    if not words.number:
        lines = [
            f"{prompt.number}. {one_line(without_attachments(prompt.message.plain_text))}"
            for prompt in history.prompts()
        ]
        return "\n".join(lines) or "There is no earlier message."
    return await _moved(
        f"Back before message {words.number}",
        history.rewind(words.number, files=FILES in options, force=FORCE in options),
    )


async def _tree(conversation: Conversation, argument: str) -> str:
    words = _words("tree", argument, FILES, FORCE)
    history, options = conversation.history, words.options
    branches = history.branches()
    if words.number:
        number = branches[words.number].number if words.number < len(branches) else words.number
        change = history.switch(number, files=FILES in options, force=FORCE in options)
        return await _moved(f"This was branch {words.number}", change)
    lines: list[str] = []
    for index, branch in enumerate(branches):
        own = branch.messages[branch.shared :] if index else branch.messages
        first = next((m for m in own if m.role is Role.USER and not m.is_hint), None)
        title = one_line(without_attachments(first.plain_text))[:MAX_TITLE] if first else ""
        size = pluralize(len(branch.messages), "message")
        lines.append(f"{index or 'now'}. {size} {title}".rstrip())
    return "\n".join(lines)


async def _compact(conversation: Conversation, argument: str) -> str:
    done = await compact(conversation.session, await conversation.backend(), argument)
    facts = [f"/remember {fact.name} = {fact.value}" for fact in done.facts]
    offer = ["These facts may be worth keeping; nothing is stored yet:", *facts] if facts else []
    return "\n".join([done.text, done.summary, *offer])


async def _remember(conversation: Conversation, argument: str) -> str:
    fact = parse_fact(argument)
    await remember(conversation.memory, conversation.cwd, fact)
    return f"Remembered: {fact.name}"


async def _moved(verb: str, change: Awaitable[MoveResult]) -> str:
    """The result of a change; a refusal is raised with its details."""
    try:
        moved = await change
    except UndoError as error:
        raise UndoError("\n".join([str(error), *error.details])) from error
    return "\n".join(moved.lines(verb)) or f"{verb}."


def _words(name: str, argument: str, *options: str) -> Words:
    words = argument.split()
    numbers = [int(w) for w in words if w.isascii() and w.isdecimal() and len(w) < 10]
    chosen = frozenset(word for word in words if word in options)
    if len(numbers) > 1 or len(numbers) + len(chosen) < len(words):
        raise InvalidRequestError(f"/{name} takes a number, and {' or '.join(options)}.")
    return Words(numbers[0] if numbers else 0, chosen)


COMMANDS = {
    command.name: command
    for command in (
        Command("context", "What fills the context", _context, f"[{TOOLS}]"),
        Command("clear", "Forget the conversation", _clear),
        Command("skills", "The skills that the model can read", _skills),
        Command("undo", "Undo the last changes of tools to files", _undo, "[NUMBER] [force]"),
        Command("redo", "Make the last undone changes again", _redo, "[NUMBER] [force]"),
        Command("compact", "Summarise old turns in their place", _compact, "[WHAT TO KEEP]"),
        Command("remember", "Keep a fact for later conversations", _remember, "NAME = VALUE"),
        Command("diff", "What changed in files since the session began", _diff),
        Command("rewind", "Go back to an earlier message", _rewind, "[NUMBER] [files] [force]"),
        Command("tree", "The branches of the conversation", _tree, "[NUMBER] [files] [force]"),
    )
}
