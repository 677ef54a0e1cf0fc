"""Refusing conversations that are far too long before they are tokenized to their end."""

from shepherd.backends.inprocess.room import check_room
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.messages import Role
from shepherd.session import Session

_USUAL_BYTES = 8
"""More bytes a token than this is unusual, so a text this long is worth counting first."""

_SLICE = 8 * 1024
_MARGIN = 2
"""Cutting a text into slices changes its count by far less than this factor."""


class LengthLimit:
    """What fits into a context at most, by a model's vocabulary."""

    def __init__(self, vocab: Vocab, context_size: int) -> None:
        self._vocab = vocab
        self._size = context_size

    def check_session(self, session: Session) -> None:
        """Raise ContextFullError for a session that need not be rendered to know that.

        Each message takes a token at least, and templates write what users and tools say, but for
        blanks around it.
        """
        if len(session.messages) >= self._size:
            check_room(len(session.messages), self._size)
        heard = (m.content for m in session.messages if m.role in (Role.USER, Role.TOOL))
        self._check_bytes(sum(len(text.strip()) for text in heard))

    def check_text(self, text: str) -> None:
        """Raise ContextFullError for a rendered prompt that does not fit, counted in slices."""
        if len(text) <= _USUAL_BYTES * self._size:
            return
        self._check_bytes(len(text))
        tokens = 0
        for start in range(0, len(text), _SLICE):
            tokens += len(self._vocab.tokenize(text[start : start + _SLICE]))
            if tokens > _MARGIN * self._size:
                check_room(tokens, self._size)

    def _check_bytes(self, least: int) -> None:
        """No token has more bytes than the longest; a text has `least` bytes or more."""
        tokens = least // self._vocab.longest if least > self._size else 0
        if tokens >= self._size:
            check_room(tokens, self._size)
