"""The limits of undo, and the result of undo and its like, as plain data."""

from dataclasses import dataclass, field

MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class UndoLimits:
    """The limits of the store in bytes and days; `file_bytes` is the size of the largest file.

    `command_bytes` limits what is kept before a command runs; 0 means that commands are not
    watched.
    """

    max_bytes: int = 512 << 20
    max_days: int = 30
    file_bytes: int = 8 << 20
    command_bytes: int = 64 << 20


@dataclass(slots=True)
class MoveResult:
    """The result of a move: the labels of the changes, and the paths by what happened to them.

    `failed` has pairs of a path and a reason. `notes` are about commands with unknown changes.
    """

    labels: list[str] = field(default_factory=list[str])
    restored: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])

    def lines(self, verb: str) -> list[str]:
        """The result for the user; `verb` says what was done, such as `Undone`."""
        lines = [f"{verb}: {label}" for label in self.labels]
        if self.restored:
            lines.append(f"Restored: {_listed(self.restored)}")
        if self.removed:
            lines.append(f"Removed: {_listed(self.removed)}")
        lines += [f"Not changed: {path}: {why}" for path, why in self.failed[:MAX_LISTED]]
        if len(self.failed) > MAX_LISTED:
            lines.append(f"Not changed: {len(self.failed) - MAX_LISTED} more")
        return [*lines, *self.notes[-MAX_LISTED:]]

    def to_json(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {
            "changes": self.labels,
            "restored": self.restored,
            "removed": self.removed,
            "failed": [{"path": path, "reason": why} for path, why in self.failed],
            "notes": self.notes,
        }


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
