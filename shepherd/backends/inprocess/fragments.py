"""Tokenizes rendered text, and remembers the tokens of earlier text and answers."""

import codecs
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from shepherd.backends.inprocess import special

MAX_BYTES = 40_000_000
"""Of texts with their tokens: about a million tokens of long messages."""

_ENTRY_BYTES = 250
_TOKEN_BYTES = 36
"""What one entry and one token take, measured with tracemalloc."""


class Tail(Struct, frozen=True):
    """The end of a prompt after its last control token, which the answer continues."""

    text: str
    tokens: tuple[int, ...]


class FragmentTokenizer:
    """Tokenizes between control tokens, piece by piece, as llama.cpp does.

    Each piece is tokenized once. A generated piece keeps the model's own tokens, so rendering an
    answer again gives the tokens that are already in memory. Not thread-safe.
    """

    def __init__(
        self,
        vocab: special.Vocabulary,
        specials: special.SpecialTexts,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`max_bytes`: the memory for pieces that are known."""
        self._max_bytes = max_bytes
        self._vocab = vocab
        self._specials = specials
        self._known: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._bytes_known = 0
        self._newline = vocab.tokenize("\n") if vocab.is_sentencepiece else []

    def tokenize(self, rendered: str, *, begins: bool = True) -> tuple[list[int], Tail]:
        """The tokens of a rendered template, with BOS if it `begins` and the vocabulary has one."""
        tokens: list[int] = []
        at, strip_next = 0, False
        for match in self._specials.pattern.finditer(rendered):
            control = self._specials.controls[match.group()]
            fragment = rendered[at : match.start()]
            fragment = fragment.lstrip() if strip_next else fragment
            if control.attributes & special.ATTR_LSTRIP:
                fragment = fragment.rstrip()
            tokens += self.fragment(fragment)
            tokens.append(control.id)
            at, strip_next = match.end(), bool(control.attributes & special.ATTR_RSTRIP)
        last = rendered[at:].lstrip() if strip_next else rendered[at:]
        tail = Tail(_key(last), self.fragment(last))
        tokens += tail.tokens
        return self._with_bos(tokens) if begins else tokens, tail

    def joins_exactly(self, rendered: str) -> bool:
        """Whether joined pieces equal llama.cpp's tokens of the whole text.

        llama.cpp searches long special tokens first, not from left to right. If a vocabulary has
        overlapping tokens, the result may differ. It would see the text without our marks.
        """
        return self.tokenize(rendered)[0] == self.tokenize_whole(special.without_marks(rendered))[0]

    def tokenize_whole(self, rendered: str, *, begins: bool = True) -> tuple[list[int], Tail]:
        """Tokenize as llama.cpp does, without memory; sealed text keeps its seals."""
        tokens = self._vocab.tokenize(rendered, parse_special=True)
        return self._with_bos(tokens) if begins else tokens, Tail("", ())

    def _with_bos(self, tokens: list[int]) -> list[int]:
        if self._vocab.adds_bos and tokens[:1] != [self._vocab.bos]:
            tokens.insert(0, self._vocab.bos)
        return tokens

    def fragment(self, text: str) -> tuple[int, ...]:
        """The tokens of text in which only user-defined tokens are special."""
        key = _key(text)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        first, *rest = key.split(special.CUT)
        tokens = self._vocab.tokenize(first)
        for part in rest:
            tokens += self._continuation(part)
        return self._remember(key, tuple(tokens))

    def remember_generated(self, tail: Tail, tokens: Sequence[int], characters: int) -> None:
        """Remember the tokens of an answer after a prompt's tail, up to `characters` of text."""
        before, piece, generated = tail.text, list(tail.tokens), b""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            new = self._vocab.piece(token)
            characters -= len(decoder.decode(new))
            if characters < 0:
                break  # the rest was cut off, by a stop string for example
            if token in self._specials.control_ids:
                self._remember_piece(before, generated, piece)
                before, piece, generated = "", [], b""
            else:
                piece.append(token)
                generated += new
        self._remember_piece(before, generated, piece)

    def learn(self, tokens: Sequence[int]) -> None:
        """Note the tokens of a prompt from an earlier run, with the answers in it.

        Tokens that differ from the text's own were chosen by a model. Negative ones are images.
        """
        piece: list[int] = []
        for token in tokens:
            if token < 0 or token in self._specials.control_ids:
                self._learn_piece(piece)
                piece = []
            else:
                piece.append(token)
        self._learn_piece(piece)

    def _learn_piece(self, tokens: list[int]) -> None:
        """Learn a piece if its text is the same: whole characters only, no changed markers."""
        text = self._bytes(tokens).decode("utf-8", "replace")
        if self._vocab.is_sentencepiece:
            text = text.removeprefix(" ")
        usual = self._vocab.tokenize(text)
        specials = self._vocab.specials
        same_text = self._bytes(usual) == self._bytes(tokens)
        if same_text and [t for t in usual if t in specials] == [
            t for t in tokens if t in specials
        ]:
            self._remember_piece("", text.encode(), tokens)

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._vocab.piece(token) for token in tokens)

    def _remember_piece(self, before: str, generated: bytes, tokens: list[int]) -> None:
        """Remember the piece, and the shorter text if a template trims its end."""
        while generated:
            text = generated.decode("utf-8", "replace")
            self._remember(before + text, tuple(tokens))
            last = self._vocab.piece(tokens[-1])
            if not last.isspace():
                return
            generated, tokens = generated[: -len(last)], tokens[:-1]

    def _remember(self, key: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        self._bytes_known += _size(key, tokens) - _size(key, self._known.get(key))
        self._known[key] = tokens
        while self._bytes_known > self._max_bytes:
            self._bytes_known -= _size(*self._known.popitem(last=False))
        return tokens

    def _continuation(self, text: str) -> list[int]:
        """The tokens of text inside a line; SentencePiece would add a space before it."""
        if not self._vocab.is_sentencepiece:
            return self._vocab.tokenize(text)
        return self._vocab.tokenize("\n" + text)[len(self._newline) :]


def _key(fragment: str) -> str:
    """The text under which tokens are remembered: as it is written in an answer, without seals."""
    return fragment.replace(special.SEAL, "")


def _size(key: str, tokens: tuple[int, ...] | None) -> int:
    """The memory of an entry in bytes, if there is one."""
    return 0 if tokens is None else _ENTRY_BYTES + len(key) + _TOKEN_BYTES * len(tokens)
