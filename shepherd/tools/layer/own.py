"""What commands of this session have made: who deletes it again takes nothing of the user's."""

import stat
from collections.abc import Sequence
from pathlib import Path

from shepherd.tools.layer.change import Change, Deed, Marks, marks_at
from shepherd.tools.layer.effect import MAX_COMPARED
from shepherd.tools.layer.layer import Layer


class OwnFiles:
    """The paths that committed layers have made, with the marks that these left."""

    def __init__(self) -> None:
        self._marks: dict[Path, Marks] = {}

    def holds(self, root: Path, change: Change) -> bool:
        """Whether the change is about what a layer has made, and nothing else has changed since."""
        marks = self._marks.get(root / change.path)
        return marks is not None and change.before is not None and marks == _lasting(change.before)

    def expected(self, layer: Layer, changes: Sequence[Change]) -> dict[Path, Marks]:
        """What will be such paths if these changes of the layer are committed."""
        deleted = any(change.deed is Deed.DELETED for change in changes)
        expected: dict[Path, Marks] = {}
        for change in changes:
            # a large file may have been moved
            is_new = not change.moved_from and not (deleted and change.size > MAX_COMPARED)
            is_made = change.deed is Deed.MADE and is_new
            if is_made or (change.deed is not Deed.DELETED and self.holds(layer.root, change)):
                marks = marks_at(layer.upper / change.path)
                if marks is not None:
                    expected[layer.root / change.path] = marks
        return expected

    def note(self, expected: dict[Path, Marks]) -> None:
        """Note what was committed; what something else has replaced at once is not noted."""
        for path, marks in expected.items():
            now = marks_at(path)
            if now is not None and (stat.S_ISDIR(now[0]) or now[2:] == marks[2:]):
                self._marks[path] = _lasting(now)


def _lasting(marks: Marks) -> Marks:
    """The marks without those that change with the entries of a directory."""
    mode, inode, *_ = marks
    return (stat.S_IFDIR, inode, 0, 0) if stat.S_ISDIR(mode) else marks
