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
        self._known_tokens: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        """The tokens of texts, the one that was used last at the end."""
        self._known_bytes = 0
        self._newline = vocab.tokenize("\n") if vocab.is_sentencepiece else []

    def tokenize(self, rendered: str, *, begins: bool = True) -> tuple[list[int], Tail]:
        """The tokens of a rendered template, with BOS if it `begins` and the vocabulary has one."""
        tokens: list[int] = []
        at, strips_behind = 0, False
        for match in self._specials.pattern.finditer(rendered):
            control = self._specials.controls[match.group()]
            fragment = rendered[at : match.start()]
            if strips_behind:
                fragment = fragment.lstrip()
            if control.attributes & special.ATTR_LSTRIP:  # the token takes the space before it
                fragment = fragment.rstrip()
            tokens += self.fragment(fragment)
            tokens.append(control.id)
            at = match.end()
            strips_behind = bool(control.attributes & special.ATTR_RSTRIP)
        last = rendered[at:].lstrip() if strips_behind else rendered[at:]
        tail = Tail(_key(last), self.fragment(last))
        tokens += tail.tokens
        return with_bos(tokens, self._vocab) if begins else tokens, tail

    def joins_exactly(self, rendered: str) -> bool:
        """Whether joined pieces equal llama.cpp's tokens of the whole text.

        llama.cpp searches long special tokens first, not from left to right. If a vocabulary has
        overlapping tokens, the result may differ. It would see the text without our marks.
        """
        return self.tokenize(rendered)[0] == self.tokenize_whole(special.without_marks(rendered))[0]

    def tokenize_whole(self, rendered: str, *, begins: bool = True) -> tuple[list[int], Tail]:
        """Tokenize as llama.cpp does, without memory; sealed text keeps its seals."""
        tokens = self._vocab.tokenize(rendered, parse_special=True)
        return with_bos(tokens, self._vocab) if begins else tokens, Tail(text="", tokens=())

    def fragment(self, text: str) -> tuple[int, ...]:
        """The tokens of text in which only user-defined tokens are special."""
        key = _key(text)
        known = self._known_tokens.get(key)
        if known is not None:
            self._known_tokens.move_to_end(key)
            return known
        first, *others = key.split(special.CUT)  # each cut breaks a marker in two texts
        tokens = self._vocab.tokenize(first)
        for part in others:
            tokens += self._continuation(part)
        return self._remember(key, tuple(tokens))

    def remember_generated(self, tail: Tail, tokens: Sequence[int], characters: int) -> None:
        """Remember the tokens of an answer after a prompt's tail, up to `characters` of text."""
        prompt_text, piece, generated = tail.text, list(tail.tokens), b""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            token_bytes = self._vocab.piece(token)
            characters -= len(decoder.decode(token_bytes))
            if characters < 0:
                break  # the rest was cut off, by a stop string for example
            if token in self._specials.control_ids:  # one piece ends, and the next begins
                self._remember_piece(prompt_text, generated, piece)
                prompt_text, piece, generated = "", [], b""
            else:
                piece.append(token)
                generated += token_bytes
        self._remember_piece(prompt_text, generated, piece)

    def learn(self, tokens: Sequence[int]) -> None:
        """Note the tokens of a prompt from an earlier run, with the answers in it.

        Tokens that differ from the text's own were chosen by a model. Negative ones are images.
        """
        piece: list[int] = []
        for token in tokens:
            # Text was tokenized only between these, so the known pieces end there too.
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
            text = text.removeprefix(" ")  # its tokenizer adds this space again
        usual_tokens = self._vocab.tokenize(text)
        same_text = self._bytes(usual_tokens) == self._bytes(tokens)
        if same_text and self._special_ones(usual_tokens) == self._special_ones(tokens):
            self._remember_piece("", text.encode(), tokens)

    def _special_ones(self, tokens: list[int]) -> list[int]:
        return [token for token in tokens if token in self._vocab.specials]

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._vocab.piece(token) for token in tokens)

    def _remember_piece(self, prompt_text: str, generated: bytes, tokens: list[int]) -> None:
        """Remember the tokens of a prompt's end and the text behind it.

        The text without the space at its end is remembered too: a template may trim it.
        """
        while generated:
            text = generated.decode("utf-8", "replace")
            self._remember(prompt_text + text, tuple(tokens))
            last = self._vocab.piece(tokens[-1])
            if not last.isspace():
                return
            generated, tokens = generated[: -len(last)], tokens[:-1]

    def _remember(self, key: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Keep the tokens of a text, and forget the texts that were used longest ago."""
        self._known_bytes += _size(key, tokens) - _size(key, self._known_tokens.get(key))
        self._known_tokens[key] = tokens
        while self._known_bytes > self._max_bytes:
            self._known_bytes -= _size(*self._known_tokens.popitem(last=False))
        return tokens

    def _continuation(self, text: str) -> list[int]:
        """The tokens of text inside a line; SentencePiece would add a space before it."""
        if not self._vocab.is_sentencepiece:
            return self._vocab.tokenize(text)
        # Behind a newline it adds none; the tokens of the newline are then left out.
        return self._vocab.tokenize("\n" + text)[len(self._newline) :]


def with_bos(tokens: list[int], vocab: special.Vocabulary) -> list[int]:
    """The tokens of a prompt's beginning, with one BOS if the vocabulary has one."""
    has_bos = tokens[:1] == [vocab.bos]  # the text may begin with it
    if vocab.adds_bos and not has_bos:
        tokens.insert(0, vocab.bos)
    return tokens


def _key(fragment: str) -> str:
    """The text under which tokens are remembered: as it is written in an answer, without seals."""
    return fragment.replace(special.SEAL, "")


def _size(key: str, tokens: tuple[int, ...] | None) -> int:
    """The memory of an entry in bytes, if there is one."""
    return 0 if tokens is None else _ENTRY_BYTES + len(key) + _TOKEN_BYTES * len(tokens)
