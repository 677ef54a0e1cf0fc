"""Commands about what was: clear, compact, remember, undo, redo, diff, rewind, tree."""

from datetime import datetime
from functools import partial

from shepherd import events, messages
from shepherd.conversation.commands.command import (
    Command,
    Diff,
    Lines,
    Note,
    Offer,
    Row,
    parse_words,
)
from shepherd.conversation.compaction import compact, parse_fact, remember
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.history import BranchView
from shepherd.tools.text import one_line, pluralize
from shepherd.undo.log import MoveResult

MAX_LISTED = 30
MAX_TITLE = 60
FILES, CONVERSATION, FORCE = "files", "conversation", "force"
_COUNT, _PLACE = "[NUMBER] [force]", "[NUMBER] [files|conversation] [force]"
_ATTACHMENT = "\n\n<file path="
UNCHANGED = "Nothing has changed: the files were as they were to be."
FACTS = "These facts may be worth keeping; nothing is stored yet:"


async def _clear(conversation: Conversation, _argument: str) -> Lines:
    conversation.clear()
    return ["The conversation starts afresh."]


async def compact_turns(
    conversation: Conversation, argument: str, on_event: events.EventCallback = events.ignore_events
) -> Lines:
    """Let the model summarise; `on_event` gets the progress."""
    backend = await conversation.backend()
    done = await compact(conversation.session, backend, argument, on_event)
    if not done.facts or conversation.memory is None:
        return [done.text, Note(done.summary)]
    facts = [f"{fact.name} = {fact.value}" for fact in done.facts]
    offers = [Offer(f"Remember {fact}?", f"/remember {fact}") for fact in facts]
    return [done.text, Note(done.summary), Note(FACTS), *offers]


async def _remember(conversation: Conversation, argument: str) -> Lines:
    fact = parse_fact(argument)
    await remember(conversation.memory, conversation.cwd, fact)
    return [f"Remembered: {fact.name}"]


async def _undo(conversation: Conversation, argument: str, *, again: bool = False) -> Lines:
    """Undo changes of files, or make them `again`."""
    words = parse_words("redo" if again else "undo", argument, FORCE)
    files, force = conversation.history.files, FORCE in words.options
    moved = await (files.redo if again else files.undo)(words.number or 1, force=force)
    lines = moved.lines("Made again" if again else "Undone")
    return [*lines, *([] if moved.count else [UNCHANGED])]


async def _diff(conversation: Conversation, _argument: str) -> Lines:
    text = await conversation.history.files.diff()
    return [Diff(text) if text else "No file has changed."]


async def _rewind(conversation: Conversation, argument: str) -> Lines:
    words = parse_words("rewind", argument, FILES, CONVERSATION, FORCE)
    history, options = conversation.history, words.options
    if not words.number:  # without a number, the command lists them
        prompts = history.prompts()[-MAX_LISTED:]
        rows = [Row(str(p.number), f"{_when(p.time)}  {_title(p.message)}") for p in prompts]
        return rows or ["There is no earlier message."]
    moved = await history.rewind(words.number, files=FILES in options, force=FORCE in options)
    return [f"Back before message {words.number}; /tree shows both branches.", *_rest(moved)]


async def _tree(conversation: Conversation, argument: str) -> Lines:
    words = parse_words("tree", argument, FILES, CONVERSATION, FORCE)
    history, options = conversation.history, words.options
    branches = history.branches()
    if not words.number:  # without a number, the command lists them
        if len(branches) == 1:
            return ["There is one branch; /rewind begins another."]
        rows = [Row(str(n) if n else "now", _branch_line(b)) for n, b in enumerate(branches)]
        return [*rows, Note("/tree NUMBER goes on with another one.")]
    place = words.number
    # a branch has a number of its own; a place that is not in the list is refused by `switch`
    number = branches[place].number if place < len(branches) else place
    moved = await history.switch(number, files=FILES in options, force=FORCE in options)
    return [f"This is branch {place} now; /tree shows the others.", *_rest(moved)]


def _rest(moved: MoveResult) -> list[str]:
    """What happened to the files; the first lines, one for each label, are told already."""
    return moved.lines("Back")[len(moved.labels) :]


def _names_files(argument: str) -> bool:
    return FILES in argument.split()


def _when(time: datetime | None) -> str:
    """`14:05`, or as many spaces for a message whose time is unknown."""
    return time.astimezone().strftime("%H:%M") if time is not None else "     "


def _title(message: messages.Message) -> str:
    """The beginning of a message as it was typed."""
    return one_line(message.plain_text.partition(_ATTACHMENT)[0])[:MAX_TITLE]


def _branch_line(branch: BranchView) -> str:
    """The branch's size, and its first message that the present branch does not have."""
    size = f"{_when(branch.time)}  {pluralize(len(branch.messages), 'message')}"
    if branch.number == 0:
        return size
    not_shared = branch.messages[branch.shared :]
    first = next((m for m in not_shared if m.role is messages.Role.USER and not m.is_hint), None)
    title = _title(first) if first is not None else ""
    return f"{size}, from message {branch.shared + 1} on: {title}"


PAST_COMMANDS: tuple[Command[[Conversation, str]], ...] = (
    Command("clear", "", "forget the conversation", _clear),
    Command("compact", "[WHAT TO KEEP]", "let the model summarise old turns in their place",
            compact_turns),
    Command("remember", "NAME = VALUE", "keep a fact for later conversations", _remember),
    Command("undo", _COUNT, "undo the last changes of tools to files", _undo,
            lambda: (FORCE,), approves=lambda _: True),
    Command("redo", _COUNT, "make the last undone changes again", partial(_undo, again=True),
            lambda: (FORCE,), approves=lambda _: True),
    Command("diff", "", "what changed in files since the session began", _diff, beside=True),
    Command("rewind", _PLACE, "go back to an earlier message (also Esc Esc)", _rewind,
            approves=_names_files),
    Command("tree", _PLACE, "the branches of the conversation; with a number, go on with one",
            _tree, approves=_names_files),
)  # fmt: skip
