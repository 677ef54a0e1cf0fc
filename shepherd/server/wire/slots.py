"""What clients save of the slots of llama.cpp's server: the tokens of conversations.

The engine keeps the states of these tokens in its own cache, in memory and on disk. A slot is
restored by reading its tokens as a prompt, which finds the states there, or computes them again.
"""

from array import array
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from shepherd.config.files import write_private
from shepherd.server.errors import invalid
from shepherd.server.record import current_origin

MAX_SLOTS = 64
MAX_FILES = 1000


class Slots:
    """The last conversation of each slot, and those that were saved in a folder.

    Each key has slots and names of its own.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder nothing can be saved."""
        self._folder = folder
        self._last: dict[tuple[str, int], Sequence[int]] = {}

    def note(self, slot: int, tokens: Sequence[int]) -> None:
        """Note the tokens of a conversation that has ended, or () if they can't be saved."""
        place = current_origin().key, slot
        self._last.pop(place, None)  # the one that was used last stays longest
        self._last[place] = tokens
        if len(self._last) > MAX_SLOTS:
            del self._last[next(iter(self._last))]

    def save(self, slot: int, name: str) -> tuple[int, int]:
        """Save a slot under any name; its tokens and bytes. Raises ApiError if it is empty."""
        file, tokens = self._file(name), self._last.get((current_origin().key, slot), ())
        if not tokens:
            raise invalid("id_slot", "has no text conversation of this key that could be saved")
        data = array("i", tokens).tobytes()
        write_private(file, data)
        oldest_first = sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in oldest_first[:-MAX_FILES]:
            old.unlink(missing_ok=True)
        return len(tokens), len(data)

    def read(self, name: str) -> "array[int]":
        """The tokens that were saved under a name; raises ApiError if there are none."""
        try:
            return array("i", self._file(name).read_bytes())
        except FileNotFoundError as error:
            raise invalid("filename", "nothing was saved under this name") from error

    def erase(self, slot: int) -> int:
        """Forget the conversation of a slot; its tokens."""
        return len(self._last.pop((current_origin().key, slot), ()))

    def _file(self, name: str) -> Path:
        if self._folder is None:
            raise invalid("action", "nothing is saved on this server")
        return self._folder / sha256(f"{current_origin().key}\0{name}".encode()).hexdigest()
