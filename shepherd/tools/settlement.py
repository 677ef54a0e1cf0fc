"""What becomes of the changes in a layer: the rules or the user decide, then they are committed."""

import asyncio
from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind, EffectAccess
from shepherd.tools.confinement import Confiner, Plan
from shepherd.tools.consent import CallStep, Consent, Described, PreparedCall
from shepherd.tools.layer import describe
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import Effect, read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import keep_bases, reconcile
from shepherd.tools.layer.parts import Parts, with_directories
from shepherd.tools.paths import reason
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.program import git_paths
from shepherd.tools.text import one_line, pluralize, valid_text
from shepherd.tools.tool import ToolResult

_MAX_NAMED = 5
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
        held = await asyncio.to_thread(self.confiner.held_back, self.plan, layer, effect.changes)
        usual = [change for change in effect.changes if not _is_below(change.path, held)]
        kept, dropped = await self._approved(layer, usual)
        if dropped:
            more = f"; {len(dropped) - _MAX_DROPPED} more" if len(dropped) > _MAX_DROPPED else ""
            notes.append(f"[the user dropped: {'; '.join(dropped[:_MAX_DROPPED])}{more}]")
        if held:  # the answer may take long
            paths = [change.path for change in effect.changes]
            await asyncio.to_thread(keep_bases, layer.base, layer.root, paths)
        refused = [path for path in held if not await self._is_approved(layer.root / path)]
        if refused:
            notes.append(f"[not kept, as they need approval: {listed(refused)}]")
        held = [path for path in held if path not in refused]
        kept |= {c.path for c in effect.changes if _is_below(c.path, held)}
        kept = with_directories(effect.changes, kept)
        changes = [change for change in effect.changes if change.path in kept]
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
        accesses = await asyncio.to_thread(_accesses, layer.root, changes, policy)
        parts: list[Parts] = []  # one, if there is a question
        described = partial(_described, layer, changes, parts)
        left_out, numbers = await self.consent.keep(self.prepared, self.plan, accesses, described)
        if numbers is not None:
            try:
                return await asyncio.to_thread(parts[0].choose, numbers)
            except OSError as error:
                raise ToolError(f"the rest can't be dropped: {reason(error)}") from error
        pairs = zip(changes, accesses, strict=True)
        return {change.path for change, access in pairs if access not in left_out}, []

    async def _is_approved(self, path: Path) -> bool:
        """Whether the rules or the user let the call write a file that programs run unasked."""
        what = f"made {one_line(str(path))}, which may run programs or hold secrets"
        purpose = f"{self.prepared.label}\n{what}"
        try:
            await self.prepared.context.authorize(Access(AccessKind.WRITE, str(path)), purpose)
        except ToolError:
            return False
        return True

    async def _commit_all(self, layer: Layer, changes: Sequence[Change]) -> list[str]:
        """Commit, with the states before in the store of /undo; returns a note about a failure."""
        # an undo of parts of a repository would break it
        made = {change.path for change in changes if change.deed is Deed.MADE}
        kept = [change.path for change in changes if not _is_of_old_repository(change.path, made)]
        accesses = [Access(AccessKind.WRITE, str(layer.root / path)) for path in kept]
        written = replace(self.prepared, accesses=tuple(accesses))
        if self.undo is not None and kept:
            await self.undo.before(written)
        try:
            await asyncio.to_thread(commit, layer, changes)
        except OSError as error:
            return [f"[no change was kept: {reason(error)}]"]
        finally:
            if self.undo is not None and kept:
                await self.undo.after(written, ToolResult(""))
        return []


def _accesses(
    root: Path, changes: Sequence[Change], policy: PermissionPolicy
) -> list[EffectAccess]:
    """The changes as the rules see them."""
    # git is only started if a rule needs to know its files
    patterns = (rule.pattern for rule in policy.rules() if rule.tool == "effect")
    needs_git = any("untracked" in pattern for pattern in patterns)
    tracked = frozenset(git_paths(root, ["ls-files", "-z"])) if needs_git else None
    files = sum(change.sort is not Sort.DIRECTORY for change in changes)
    accesses: list[EffectAccess] = []
    for change in changes:
        deed = "delete" if change.deed is Deed.DELETED else "write"
        untracked = tracked is not None and change.path not in tracked
        target = f"{deed} {root / change.path}"
        access = EffectAccess(AccessKind.EFFECT, target, files=files, untracked=untracked)
        accesses.append(access)
    return accesses


def _described(layer: Layer, changes: Sequence[Change], parts: list[Parts]) -> Described:
    """What the user reads about an effect; its parts are added to `parts`."""
    # the answer may take long, and what changes meanwhile can be merged
    keep_bases(layer.base, layer.root, [change.path for change in changes])
    effect = Effect(tuple(changes))
    lines = [f"{describe.summary(effect)}:", *describe.listing(effect, _MAX_LISTED)]
    parts.append(Parts(layer, changes, _MAX_DIFF))
    diff = describe.diff(effect, layer, _MAX_DIFF)
    return Described("\n".join(lines), diff, parts[0].offered)


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _is_of_old_repository(path: str, made: Container[str]) -> bool:
    """Whether a path belongs to git in a repository that was there before."""
    parts = path.split("/")
    return ".git" in parts and "/".join(parts[: parts.index(".git") + 1]) not in made


def listed(paths: Sequence[str]) -> str:
    """The first of the paths, and the number of the others."""
    names = [one_line(valid_text(path)) for path in paths[:_MAX_NAMED]]
    more = len(paths) - len(names)
    return ", ".join(names) + (f" and {pluralize(more, 'other file')}" if more else "")
