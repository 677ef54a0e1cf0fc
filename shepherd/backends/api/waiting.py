"""Something to do before a stream makes its reader wait."""

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any


class BeforeWait(Generator[Any, Any, bytes]):
    """Gives a body's next piece each time it is awaited; `act` runs first if that takes a wait.

    What came in one read of the network is so taken without `act` in between. What `act` raises
    ends the body as an error of the network would, and comes out of it. `waited` says whether the
    last piece took a wait.
    """

    def __init__(self, body: AsyncGenerator[bytes, None], act: Callable[[], None]) -> None:
        self._body = body
        self._act = act
        self.waited = False

    def __await__(self) -> Generator[Any, Any, bytes]:
        self._step = anext(self._body).__await__()
        self.waited = False
        return self

    def __next__(self) -> Any:
        told = next(self._step)
        if not self.waited:
            self.waited = True
            try:
                self._act()
            except BaseException as error:  # noqa: BLE001 - the body lets go of its connection first
                return self._step.throw(error)
        return told

    def send(self, value: Any, /) -> Any:
        """Go on; StopIteration holds the piece."""
        return next(self) if value is None else self._step.send(value)

    def throw(self, *error: Any) -> Any:
        """Hand an error, such as a cancel, to the body."""
        return self._step.throw(*error)
