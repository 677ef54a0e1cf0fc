"""What becomes of the changes in a layer: the rules or the user decide, then they are committed."""

import asyncio
from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tasks import in_thread_to_end
from shepherd.tools.access import Access, AccessKind, Claim, EffectAccess
from shepherd.tools.confinement import Confiner, Plan
from shepherd.tools.consent import CallStep, Consent, Described, PreparedCall
from shepherd.tools.layer import describe, git
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import Effect, read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import keep_bases, reconcile
from shepherd.tools.layer.own import OwnFiles
from shepherd.tools.layer.parts import Parts, with_directories
from shepherd.tools.paths import reason
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.program import git_paths
from shepherd.tools.shielding import is_below
from shepherd.tools.text import one_line, pluralize, valid_text
from shepherd.tools.tool import ToolResult

_MAX_NAMED = 5
_MAX_HELD = 20
_MAX_DROPPED = 20
_MAX_LISTED = 200
_MAX_DIFF = 256 << 10


class Settlement(Struct, frozen=True):
    """Commits what a call has changed in a layer, as far as that is approved."""

    prepared: PreparedCall
    plan: Plan
    confiner: Confiner
    consent: Consent
    undo: CallStep | None

    async def commit(self, layer: Layer) -> list[str]:
        """Commit what may be committed; returns notes for the model about the rest.

        Raises ToolError if the rules or the user refuse all of it, and ConflictError if something
        else has changed the same files.
        """
        effect = await asyncio.to_thread(read_effect, layer)
        if self.plan.drops_effect:
            return [] if effect.is_empty else ["[plan mode: its changes were not kept]"]
        notes = [f"[{one_line(path)}: {why}]" for path, why in effect.left_out]
        changed = await asyncio.to_thread(git.lasting, effect.changes, layer)
        held = await asyncio.to_thread(self.confiner.held_back, self.plan, layer, changed)
        usual = [change for change in changed if not is_below(change.path, held)]
        kept, dropped = await self._approved(layer, usual)
        if dropped:
            more = f"; {len(dropped) - _MAX_DROPPED} more" if len(dropped) > _MAX_DROPPED else ""
            notes.append(f"[the user dropped: {'; '.join(dropped[:_MAX_DROPPED])}{more}]")
        if held:  # the answer may take long
            paths = [change.path for change in changed]
            await asyncio.to_thread(keep_bases, layer.base, layer.root, paths)
        await self._approve_loss(layer, [c for c in usual if c.path in kept])
        refused = [path for path in held if not await self._is_approved(layer, changed, path)]
        if refused:
            notes.append(f"[not kept, as they need approval: {listed(refused)}]")
        held = [path for path in held if path not in refused]
        kept |= {change.path for change in changed if is_below(change.path, held)}
        kept = with_directories(changed, kept)
        changes = [change for change in changed if change.path in kept]
        changes, merged = await asyncio.to_thread(reconcile, layer, changes)
        if changes:
            notes += await self._commit_all(layer, changes)
        if merged:
            notes.append(f"[merged with what something else changed there: {listed(merged)}]")
        return notes

    async def _approved(
        self, layer: Layer, changes: Sequence[Change]
    ) -> tuple[set[str], list[str]]:
        """The paths whose changes the rules or the user approve, and what the user drops.

        Raises ToolError if that is all.
        """
        policy = self.plan.policy
        pairs = await asyncio.to_thread(_accesses, layer.root, changes, policy, self.confiner.own)
        accesses = [access for _change, access in pairs]
        parts: list[Parts] = []  # one, if there is a question
        described = partial(_described, layer, changes, parts)
        left_out, numbers = await self.consent.keep(self.prepared, self.plan, accesses, described)
        if numbers is not None:
            try:
                return await asyncio.to_thread(parts[0].choose, numbers)
            except OSError as error:
                raise ToolError(f"the rest can't be dropped: {reason(error)}") from error
        return {change.path for change, access in pairs if access not in left_out}, []

    async def _approve_loss(self, layer: Layer, changes: Sequence[Change]) -> None:
        """Ask about what neither /undo nor git can bring back; raises ToolError if refused."""
        is_own = partial(self.confiner.own.holds, layer.root)
        loss = await asyncio.to_thread(git.loss, changes, layer, is_own)
        if loss:
            await self._authorize(layer.root / git.GIT, f"{loss}, which can't come back")

    async def _is_approved(self, layer: Layer, changes: Sequence[Change], path: str) -> bool:
        """Whether the call may change what programs run unasked, or what may hold secrets."""
        below = [change for change in changes if is_below(change.path, [path])]
        lines = [f"{change.deed} {describe.name(change.path)}" for change in below[:_MAX_HELD]]
        more = [f"and {len(below) - _MAX_HELD} more"] if len(below) > _MAX_HELD else []
        text = "\n".join(["What programs may run, or what may hold secrets:", *lines, *more])
        try:
            await self._authorize(layer.root / path, text)
        except ToolError:
            return False
        return True

    async def _authorize(self, path: Path, text: str) -> None:
        """Decide on a change that no rule about effects allows; raises ToolError if it may not be.

        For the repository as a whole, no rule is offered.
        """
        claim = Claim.OPAQUE if path.name == git.GIT else Claim.EXACT
        access = Access(AccessKind.WRITE, str(path), claim)
        await self.prepared.context.authorize(access, f"{self.prepared.label}\n{text}")

    async def _commit_all(self, layer: Layer, changes: Sequence[Change]) -> list[str]:
        """Commit, with the states before in the store of /undo; returns a note about a failure."""
        tops = {c.path for c in changes if c.deed in (Deed.MADE, Deed.DELETED)}
        kept = [change.path for change in changes if not _breaks_repository(change, tops)]
        accesses = [Access(AccessKind.WRITE, str(layer.root / path)) for path in kept]
        written = replace(self.prepared, accesses=tuple(accesses))
        if self.undo is not None and kept:
            await self.undo.before(written)
        try:
            own = await asyncio.to_thread(self.confiner.own.expected, layer, changes)
            # the layer must not be dropped meanwhile, also if the call is cancelled
            await in_thread_to_end(lambda: commit(layer, changes))
            await asyncio.to_thread(self.confiner.own.note, own)
        except OSError as error:
            return [f"[no change was kept: {reason(error)}]"]
        finally:
            if self.undo is not None and kept:
                await self.undo.after(written, ToolResult(""))
        return []


def _accesses(
    root: Path, changes: Sequence[Change], policy: PermissionPolicy, own: OwnFiles
) -> list[tuple[Change, EffectAccess]]:
    """The changes as the rules see them; one that moves a file away is also a deletion."""
    # git is only started if a rule needs to know its files
    patterns = (rule.pattern for rule in policy.rules() if rule.tool == "effect")
    needs_git = any("untracked" in pattern for pattern in patterns)
    names = git_paths(root, ["ls-files", "-z"]) if needs_git else [c.path for c in changes]
    tracked = frozenset(names)
    files = sum(change.sort is not Sort.DIRECTORY for change in changes)
    moved = {change.moved_from for change in changes}
    pairs: list[tuple[Change, EffectAccess]] = []
    for change in changes:
        deeds = {"write": True}
        if change.deed is Deed.DELETED and not git.is_of_git(change.path):
            is_moved = change.path in moved
            loses = not is_moved and not own.holds(root, change)
            deeds = {"delete": loses, **({"write": True} if is_moved else {})}
        for deed, loses in deeds.items():
            target, untracked = f"{deed} {root / change.path}", change.path not in tracked
            access = EffectAccess(
                AccessKind.EFFECT, target, files=files, untracked=untracked, loses=loses
            )
            pairs.append((change, access))
    return pairs


def _described(layer: Layer, changes: Sequence[Change], parts: list[Parts]) -> Described:
    """What the user reads about an effect; its parts are added to `parts`."""
    # the answer may take long, and what changes meanwhile can be merged
    keep_bases(layer.base, layer.root, [change.path for change in changes])
    effect = Effect(tuple(changes))
    summary = describe.summary(effect)
    lines = [*([f"{summary}:"] if summary else []), *describe.listing(effect, layer, _MAX_LISTED)]
    parts.append(Parts(layer, changes, _MAX_DIFF))
    diff = describe.diff(effect, layer, _MAX_DIFF)
    return Described("\n".join(lines), diff, parts[0].offered)


def _breaks_repository(change: Change, tops: Container[str]) -> bool:
    """Whether an undo of the change would break a repository, of which it is a part.

    Repositories that are made or deleted as a whole are in `tops`. More objects break none.
    """
    top, is_part, name = f"/{change.path}".partition("/.git/")
    is_object = change.deed is Deed.DELETED and name.startswith("objects/")
    return bool(is_part) and f"{top}/.git".lstrip("/") not in tops and not is_object


def listed(paths: Sequence[str]) -> str:
    """The first of the paths, and the number of the others."""
    names = [one_line(valid_text(path)) for path in paths[:_MAX_NAMED]]
    more = len(paths) - len(names)
    return ", ".join(names) + (f" and {pluralize(more, 'other file')}" if more else "")
