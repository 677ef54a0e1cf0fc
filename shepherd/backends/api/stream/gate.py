"""The callback of one generation, over several attempts."""

from dataclasses import dataclass

from shepherd.events import CallbackEvent, EventCallback, Topic

TOLD_FROM = 2.0
"""A pause of so many seconds is told to the user."""


@dataclass(slots=True)
class Gate:
    """Passes events on until the callback has said False; from then on it is `closed`."""

    callback: EventCallback
    closed: bool = False

    def __call__(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        if not self.closed:
            self.closed = not self.callback(event, content, name, id)
        return not self.closed

    def tell_pause(self, why: str, seconds: float) -> bool:
        """Say that a request is made again after a pause; False if nobody waits for it."""
        if seconds >= TOLD_FROM:
            text = f"{why} Trying again in {seconds:.0f} s."
            self(CallbackEvent.SYSTEM, text, Topic.NOTICE, "")
        return not self.closed

    def tell_wait(self, seconds: float) -> None:
        """Say that a request waits for a limit of our own."""
        if seconds >= TOLD_FROM:
            text = f"Waiting {seconds:.0f} s: no more requests or tokens a minute are set for it."
            self(CallbackEvent.SYSTEM, text, Topic.NOTICE, "")
