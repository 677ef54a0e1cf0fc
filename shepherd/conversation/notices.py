"""Sentences for the user that come up before anybody can show them."""

from collections.abc import Callable


class Notices:
    """Keeps what it is told until somebody listens, and passes it on from then."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._listener: Callable[[str], None] | None = None

    def tell(self, text: str) -> None:
        """Pass `text` on, now or when somebody listens."""
        if self._listener is None:
            self._waiting.append(text)
        else:
            self._listener(text)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Give `listener` what has waited, then everything that comes; replaces the one before."""
        self._listener = listener
        waiting, self._waiting = self._waiting, []
        for text in waiting:
            listener(text)
