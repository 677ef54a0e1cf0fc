"""Where in an answer a call begins, told from the text alone."""

import codecs
from collections.abc import Collection

_FENCES = ("```", "~~~")
_REASONING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"))


class CallWatch:
    """Finds a marker at the start of a line, outside of reasoning and code blocks."""

    def __init__(
        self,
        marker: str,
        opening: str = "",
        names: Collection[str] = (),
        *,
        reasoning: bool = False,
    ) -> None:
        """`opening` is what stands between the marker and the tool's name, one of `names`."""
        self._marker = marker
        self._names = names
        self._opening = opening
        self._said = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._reasoning = reasoning
        self._fenced = False
        self._line = ""

    def feed(self, piece: bytes) -> str | None:
        """Take more of the answer; what stands behind the marker if it has come."""
        text = self._decoder.decode(piece)
        if "\n" not in text:
            return self._look(text)
        *lines, last = text.split("\n")
        for number, line in enumerate(lines):
            rest = self._look(line)
            if rest is not None:
                return "\n".join((rest, *lines[number + 1 :], last))
            if self._line.lstrip().startswith(_FENCES) and not self._reasoning:
                self._fenced = not self._fenced
            self._line = ""
        return self._look(last)

    def follow(self, text: str) -> None:
        """Take more of a call that has begun."""
        self._said += text

    def strays(self, text: str) -> bool:
        """Whether with this text the call is of a tool that is not on offer.

        What a model calls is its own choice: it is never led from one tool to another.
        """
        said = self._said + text
        if not said.startswith(self._opening):
            return False
        name, quote, _ = said.removeprefix(self._opening).partition('"')
        return not any(n == name if quote else n.startswith(name) for n in self._names)

    def behind_call(self) -> None:
        """A call ended here: the next begins on another line."""
        self._line, self._said = ".", ""

    def _look(self, text: str) -> str | None:
        self._line += text
        start = self._line.lstrip()
        if self._reasoning:
            self._reasoning = not any(close in self._line for _, close in _REASONING)
        elif not self._fenced and start.startswith(self._marker):
            return start[len(self._marker) :]
        else:
            self._reasoning = start.startswith(tuple(begin for begin, _ in _REASONING))
        return None
