"""Commands about what was: clear, compact, remember, undo, redo, diff, rewind, tree."""

from collections.abc import Awaitable

from shepherd.conversation.commands.base import Command, parse_words
from shepherd.conversation.compaction import compact, parse_fact, remember
from shepherd.conversation.conversation import Conversation
from shepherd.errors import UndoError
from shepherd.messages import Message, Role
from shepherd.tools.text import one_line, pluralize
from shepherd.undo.parts import MoveResult

MAX_TITLE = 60
FILES, FORCE = "files", "force"
_COUNT, _PLACE = "[NUMBER] [force]", "[NUMBER] [files] [force]"
_ATTACHMENT = "\n\n<file path="


async def _clear(conversation: Conversation, _argument: str) -> str:
    conversation.clear()
    return "The conversation starts afresh."


async def _compact(conversation: Conversation, argument: str) -> str:
    backend = await conversation.backend()
    done = await compact(conversation.session, backend, argument)
    facts = [f"/remember {fact.name} = {fact.value}" for fact in done.facts]
    offer = ["", "These facts may be worth keeping; nothing is stored yet:", *facts]
    return "\n".join([done.text, "", done.summary, *(offer if facts else [])])


async def _remember(conversation: Conversation, argument: str) -> str:
    fact = parse_fact(argument)
    await remember(conversation.memory, conversation.cwd, fact)
    return f"Remembered: {fact.name}"


async def _undo(conversation: Conversation, argument: str) -> str:
    words = parse_words("undo", argument, FORCE)
    history, force = conversation.history, FORCE in words.options
    return await _moved("Undone", history.undo(words.number or 1, force=force))


async def _redo(conversation: Conversation, argument: str) -> str:
    words = parse_words("redo", argument, FORCE)
    history, force = conversation.history, FORCE in words.options
    return await _moved("Made again", history.redo(words.number or 1, force=force))


async def _diff(conversation: Conversation, _argument: str) -> str:
    return await conversation.history.diff() or "No file has changed."


async def _rewind(conversation: Conversation, argument: str) -> str:
    words = parse_words("rewind", argument, FILES, FORCE)
    history, options = conversation.history, words.options
    if not words.number:
        lines = [f"{prompt.number}. {_title(prompt.message)}" for prompt in history.prompts()]
        return "\n".join(lines) or "There is no earlier message."
    return await _moved(
        f"Back before message {words.number}",
        history.rewind(words.number, files=FILES in options, force=FORCE in options),
    )


async def _tree(conversation: Conversation, argument: str) -> str:
    words = parse_words("tree", argument, FILES, FORCE)
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
        size = pluralize(len(branch.messages), "message")
        lines.append(f"{index or 'now'}. {size} {_title(first) if first else ''}".rstrip())
    return "\n".join(lines)


async def _moved(verb: str, change: Awaitable[MoveResult]) -> str:
    """The result of a change; a refusal is raised with its details."""
    try:
        moved = await change
    except UndoError as error:
        raise UndoError("\n".join([str(error), *error.details])) from error
    return "\n".join(moved.lines(verb)) or f"{verb}."


def _always(_argument: str) -> bool:
    return True


def _names_files(argument: str) -> bool:
    return FILES in argument.split()


def _title(message: Message) -> str:
    """The beginning of a message as it was typed."""
    return one_line(message.plain_text.partition(_ATTACHMENT)[0])[:MAX_TITLE]


PAST_COMMANDS = (
    Command("clear", "Forget the conversation", _clear),
    Command("compact", "Let the model summarise old turns", _compact, "[WHAT TO KEEP]"),
    Command("remember", "Keep a fact for later conversations", _remember, "NAME = VALUE"),
    Command("undo", "Undo the last changes of tools to files", _undo, _COUNT, _always),
    Command("redo", "Make the last undone changes again", _redo, _COUNT, _always),
    Command("diff", "What changed in files since the session began", _diff),
    Command("rewind", "Go back to an earlier message", _rewind, _PLACE, _names_files),
    Command("tree", "The branches of the conversation", _tree, _PLACE, _names_files),
)
