"""The way back in a conversation: undo, redo, earlier messages and branches."""

from collections.abc import Callable
from datetime import datetime
from itertools import takewhile

from msgspec import Struct

from shepherd.conversation.additions import Additions
from shepherd.errors import SessionError, UndoError
from shepherd.messages import Message, Role
from shepherd.session import Branch, Session
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.log import MoveResult

OFF = "No files are kept: undo.enabled or terminal.save_sessions is off."
FILES_STAY = (
    "The user went back to an earlier message. The files stay as the messages after it left them."
)


class EarlierPrompt(Struct, frozen=True):
    """A message of the user; `number` counts them from 1, `index` is that in the session."""

    number: int
    index: int
    message: Message
    time: datetime | None


class BranchView(Struct, frozen=True):
    """A branch; `number` names it, 0 for the present one.

    `shared` is the number of its messages that the present branch has too.
    """

    number: int
    shared: int
    messages: tuple[Message, ...]
    time: datetime | None


class SessionHistory(Struct, frozen=True):
    """The past of a conversation's session and of its files.

    `keeper` is None if no files are kept. Call it only between turns.
    """

    session: Callable[[], Session]
    keeper: UndoKeeper | None
    additions: Additions

    @property
    def files(self) -> UndoKeeper:
        """The way back of files; raises UndoError if none are kept."""
        if self.keeper is None:
            raise UndoError(OFF)
        return self.keeper

    def prompts(self) -> list[EarlierPrompt]:
        """The user's messages of the present branch, the oldest first."""
        session, prompts = self.session(), list[EarlierPrompt]()
        for index, message in enumerate(session.messages):
            if message.role is Role.USER and not message.is_hint:
                time = session.times[index]
                prompts.append(EarlierPrompt(len(prompts) + 1, index, message, time))
        return prompts

    async def files_since(self, number: int) -> list[str]:
        """The files that changed since a prompt; [] if none are kept."""
        # a prompt's number is a position like a branch's: that of a message
        return await self.files_at(self._position(self._prompt(number)))

    async def files_at(self, branch: int) -> list[str]:
        """The files that differ from those at a branch's end; [] if none are kept."""
        return [] if self.keeper is None else await self.keeper.changed_files(branch)

    async def rewind(self, number: int, *, files: bool, force: bool = False) -> MoveResult:
        """Go back to just before a prompt, as a new branch; with `files`, these go back too.

        Raises SessionError if there is no such prompt, and UndoError like `undo`.
        """
        prompt = self._prompt(number)
        position = self._position(prompt)
        changed = await self._check(position, files=files, force=force)
        self.session().branch_off(prompt.index)
        return await self._move(position, files=files, force=force, changed=changed)

    def branches(self) -> list[BranchView]:
        """The present branch and the others that lead elsewhere, the latest first."""
        session = self.session()
        present = session.present_branch()
        leaves: list[Branch] = []
        for branch in reversed(session.branches):
            # a branch that is the beginning of another one leads nowhere of its own: neither this
            # one, nor one that was added before it
            is_part = any(_begins(leaf, branch) for leaf in (present, *leaves))
            if branch.messages and not is_part:
                leaves = [leaf for leaf in leaves if not _begins(branch, leaf)]
                leaves.append(branch)
        views = [BranchView(0, len(present.numbers), present.messages, _last_time(present))]
        return views + [
            BranchView(b.end, _shared(b, present), b.messages, _last_time(b)) for b in leaves
        ]

    async def switch(self, number: int, *, files: bool, force: bool = False) -> MoveResult:
        """Continue another branch; the present one stays. Raises like `rewind`."""
        session = self.session()
        branch = next((b for b in session.branches if b.end == number), None)
        if branch is None:
            raise SessionError(f"There is no branch {number}; /tree lists the branches.")
        changed = await self._check(number, files=files, force=force)
        session.resume_branch(branch)
        return await self._move(number, files=files, force=force, changed=changed)

    async def _check(self, position: int, *, files: bool, force: bool) -> bool:
        """Whether files differ from those at the position; raises if they can't go there."""
        if files and not force:
            await self.files.check_move(position)
        return bool(await self.files_at(position))

    async def _move(self, position: int, *, files: bool, force: bool, changed: bool) -> MoveResult:
        """Move the files too if `files`; else tell the model if they have `changed` since."""
        if files:
            return await self.files.move_to(position, force=force)
        if changed:  # the model must not take its earlier changes for undone
            self.additions.note(FILES_STAY)
        return MoveResult()

    def _prompt(self, number: int) -> EarlierPrompt:
        """The user's message with this number, counted from 1; raises SessionError."""
        prompts = self.prompts()
        if not 0 < number <= len(prompts):
            raise SessionError(f"There is no message {number}; /rewind lists the messages.")
        return prompts[number - 1]

    def _position(self, prompt: EarlierPrompt) -> int:
        """The number of the prompt's message, by which the keeper knows states of files."""
        return self.session().numbers[prompt.index] or 0  # None: saved before numbers existed


def _begins(whole: Branch, part: Branch) -> bool:
    """Whether all messages of `part` are the first ones of `whole`."""
    return whole.numbers[: len(part.numbers)] == part.numbers


def _shared(branch: Branch, present: Branch) -> int:
    """The number of first messages that both have."""
    pairs = zip(branch.numbers, present.numbers, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _last_time(branch: Branch) -> datetime | None:
    return branch.times[-1] if branch.times else None
