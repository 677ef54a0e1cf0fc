"""Letters that came in halves."""

_FIRST_HALVES = ("\ud800", "\udbff")


class HalfLetters:
    """Puts letters together of which a server sent the halves in two pieces.

    JSON may name a letter beyond the first 65,536 by two escapes, and servers that count in them
    cut between. A half without the other becomes U+FFFD, so that what comes out can be written.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text so far, but for a half at its end."""
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = ""
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:
            text, self._held = text[:-1], text[-1]
        return whole_letters(text)

    def finish(self) -> str:
        """What is left."""
        left, self._held = self._held, ""
        return whole_letters(left)


def whole_letters(text: str) -> str:
    """The text with its halves put together, and U+FFFD for those that are alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
