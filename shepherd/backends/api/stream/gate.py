"""The callback of one generation, over several attempts."""

from dataclasses import dataclass

from shepherd.events import CallbackEvent, EventCallback, Topic

MIN_REPORTED_SECONDS = 2.0
"""Pauses of at least this many seconds are reported to the user."""


@dataclass(slots=True)
class Gate:
    """Passes events on until the callback has returned False; from then on it is `closed`."""

    callback: EventCallback
    closed: bool = False

    def __call__(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        if not self.closed:
            self.closed = not self.callback(event, content, name, id)
        return not self.closed

    def tell_pause(self, why: str, seconds: float) -> bool:
        """Report a pause before the next attempt; False if the callback has cancelled."""
        if seconds >= MIN_REPORTED_SECONDS:
            text = f"{why} Trying again in {seconds:.0f} s."
            self(CallbackEvent.SYSTEM, text, Topic.NOTICE, "")
        return not self.closed

    def tell_wait(self, seconds: float) -> None:
        """Report that a request waits for a limit of our own."""
        if seconds >= MIN_REPORTED_SECONDS:
            text = f"Waiting {seconds:.0f} s: no more requests or tokens a minute are set for it."
            self(CallbackEvent.SYSTEM, text, Topic.NOTICE, "")
