"""Commands that go back: changes of files, earlier messages, branches."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from rich.text import Text

from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.render.tool_view import display_pieces
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.cli.terminal.paint import BLANK_LINE
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.conversation.history import BranchView, EarlierPrompt
from shepherd.errors import UndoError
from shepherd.messages import Message, Role
from shepherd.tools.text import pluralize
from shepherd.undo.parts import MoveResult

FORCE = "force"
FILES, CONVERSATION = "files", "conversation"
MAX_LISTED = 30
MAX_NAMES = 5
TITLE_WIDTH = 60


def history_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    history = _History(context)
    return [
        Command("undo", "[NUMBER] [force]", "undo the last changes of tools to files",
                history.undo, lambda: (FORCE,)),
        Command("redo", "[NUMBER] [force]", "make the last undone changes again",
                history.redo, lambda: (FORCE,)),
        Command("diff", "", "what changed in files since the session began", history.diff),
        Command("rewind", "[NUMBER] [files|conversation] [force]",
                "go back to an earlier message (also Esc Esc)", history.rewind),
        Command("tree", "[NUMBER] [files|conversation] [force]",
                "the branches of the conversation; with a number, go on with one", history.tree),
    ]  # fmt: skip


class _History:
    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._history = context.conversation.history

    async def undo(self, argument: str) -> None:
        await self._change("undo", "Undone", argument, self._history.undo)

    async def redo(self, argument: str) -> None:
        await self._change("redo", "Made again", argument, self._history.redo)

    async def diff(self, argument: str) -> None:
        text = await self._history.diff()
        if text:
            self._show_diff(text)
        else:
            self._context.say(Text("No file has changed."))

    async def rewind(self, argument: str) -> None:
        prompts = self._history.prompts()
        if not prompts:
            self._context.say(Text("There is no earlier message."))
            return
        words = argument.split()
        if not words:
            self._list_prompts(prompts[-MAX_LISTED:])
            words = (await self._context.surface.ask_text("Back to message number: ")).split()
        if not words:
            return
        parsed = _parse(words, (FILES, CONVERSATION, FORCE))
        if parsed is None or parsed[0] is None:
            self._context.renderer.error("/rewind takes a number from the list.")
            return
        number, options = parsed
        chosen = next((p for p in prompts if p.number == number), None)
        changed = await self._history.files_since(number or 0)
        files = await self._moves_files(options, changed)
        moved = await self._guarded(
            "rewind", self._history.rewind(number or 0, files=files, force=FORCE in options)
        )
        if moved is not None and chosen is not None:
            self._said(f"Back before message {number}; /tree shows both branches.", moved)
            self._context.surface.restore(without_attachments(chosen.message.content))
            await self._show_use()

    async def tree(self, argument: str) -> None:
        if not argument:
            self._list_branches(self._history.branches())
            return
        parsed = _parse(argument.split(), (FILES, CONVERSATION, FORCE))
        if parsed is None or parsed[0] is None:
            self._context.renderer.error("/tree takes the number of a branch.")
            return
        number, options = parsed
        others = [branch for branch in self._history.branches() if branch.number]
        if not 0 < (number or 0) <= len(others):
            self._context.renderer.error(f"There is no branch {number}; /tree lists them.")
            return
        branch = others[(number or 0) - 1]
        changed = await self._history.files_at(branch.number)
        files = await self._moves_files(options, changed)
        moved = await self._guarded(
            "tree", self._history.switch(branch.number, files=files, force=FORCE in options)
        )
        if moved is not None:
            self._said(f"This is branch {number} now; /tree shows the others.", moved)
            show_last_exchanges(self._context.conversation.session.messages, self._context.renderer)
            await self._show_use()

    async def _change(
        self, name: str, verb: str, argument: str, change: Callable[..., Awaitable[MoveResult]]
    ) -> None:
        parsed = _parse(argument.split(), (FORCE,))
        if parsed is None:
            self._context.renderer.error(f"/{name} takes a number, and force.")
            return
        number, options = parsed
        moved = await self._guarded(name, change(number or 1, force=FORCE in options))
        if moved is not None:
            self._context.say(*(Text(sanitize(line)) for line in moved.lines(verb)))

    async def _guarded(self, name: str, work: Awaitable[MoveResult]) -> MoveResult | None:
        """The result; a refusal is shown with its diffs, and how to force it."""
        try:
            return await work
        except UndoError as error:
            for detail in error.details:
                self._show_diff(detail)
            hint = f" /{name} … force overwrites it." if error.details else ""
            self._context.renderer.error(f"{error}{hint}")
            return None

    async def _moves_files(self, options: frozenset[str], changed: Sequence[str]) -> bool:
        """Whether the files go along; the user says so, unless the options do."""
        if not self._history.keeps_files or CONVERSATION in options:
            return False
        if FILES in options or not changed:
            return bool(changed)
        names = ", ".join(one_line(name, TITLE_WIDTH) for name in changed[:MAX_NAMES])
        more = f" and {len(changed) - MAX_NAMES} more" if len(changed) > MAX_NAMES else ""
        label = f"Changed since: {names}{more}. Take the files back too? (y/n) "
        answer = await self._context.surface.ask_text(label)
        return answer.strip().lower() in ("y", "yes")

    def _said(self, text: str, moved: MoveResult) -> None:
        lines = [text, *moved.lines("Back")[len(moved.labels) :]]
        self._context.say(*(Text(sanitize(line)) for line in lines))

    def _list_prompts(self, prompts: Sequence[EarlierPrompt]) -> None:
        rows = [(str(p.number), f"{_when(p.time)}  {_title(p.message)}") for p in prompts]
        self._context.say(two_columns(rows))

    def _list_branches(self, branches: Sequence[BranchView]) -> None:
        if len(branches) == 1:
            self._context.say(Text("There is one branch; /rewind begins another."))
            return
        rows = [("now" if b.number == 0 else str(i), _branch_line(b)) for i, b in
                enumerate(branches)]  # fmt: skip
        note = Text("/tree NUMBER goes on with another one.", style="quiet")
        self._context.say(two_columns(rows), note)

    def _show_diff(self, diff: str) -> None:
        """Show the beginning of a diff; the whole of it is among the results to read."""
        self._context.renderer.results.add("diff", diff)
        self._context.surface.show(BLANK_LINE, *display_pieces(diff))

    async def _show_use(self) -> None:
        conversation, status = self._context.conversation, self._context.status
        status.context_used = 0
        if conversation.slot.loaded_backend is not None:
            await status.loaded(conversation.slot.loaded_backend, conversation.session)


def _parse(
    words: Sequence[str], options: Sequence[str]
) -> tuple[int | None, frozenset[str]] | None:
    """The number and the options of a command; None if a word is neither."""
    numbers = [word for word in words if word.isascii() and word.isdecimal() and len(word) < 10]
    chosen = [word for word in words if word in options]
    if len(numbers) > 1 or len(numbers) + len(chosen) < len(words) or numbers == ["0"]:
        return None
    return (int(numbers[0]) if numbers else None), frozenset(chosen)


def _when(time: datetime | None) -> str:
    return time.astimezone().strftime("%H:%M") if time is not None else "     "


def _title(message: Message) -> str:
    return one_line(without_attachments(message.plain_text), TITLE_WIDTH)


def _branch_line(branch: BranchView) -> str:
    """The branch's size, and its first message that the present branch does not have."""
    own = branch.messages[branch.shared :] if branch.number else branch.messages[-1:]
    first = next((m for m in own if m.role is Role.USER and not m.is_hint), None)
    size = pluralize(len(branch.messages), "message")
    if branch.number == 0:
        return f"{_when(branch.time)}  {size}"
    title = _title(first) if first is not None else ""
    return f"{_when(branch.time)}  {size}, from message {branch.shared + 1} on: {title}"
