"""The text that a grammar forces next, as the tokens that the model would most likely choose."""

from bisect import bisect_right
from collections.abc import Sequence

from shepherd.backends.llamacpp.native.vocab import Vocab

MAX_TAIL = 4
"""Tokens of the answer that are tokenized together with forced text, because they decide where its
first token begins; the pre-tokenizers of today's vocabularies look at most one word back."""


def forced_tokens(vocab: Vocab, answer: Sequence[int], forced: bytes) -> list[int]:
    """The tokens of the text `forced` after the tokens of an answer, as far as they are certain.

    Empty if the text can't be tokenized without a change of the tokens before it and alone. Control
    tokens end the result, because only the model may choose them.
    """
    text = _whole_characters(forced)
    tokens = _behind(vocab, b"".join(map(vocab.piece, answer[-MAX_TAIL:])), text)
    if tokens is None:
        tokens = _behind(vocab, b"", text) or []
    for place, token in enumerate(tokens):
        if token in vocab.controls or vocab.is_eog(token):
            return tokens[:place]
    return tokens


def without_extensible(vocab: Vocab, tokens: list[int]) -> list[int]:
    """The tokens without those at the end that could become another, longer token.

    `": "` may continue as `": "a`, which is one token in some vocabularies.
    """
    data = b"".join(map(vocab.piece, tokens))
    first = max(0, len(data) - vocab.max_token_bytes)
    extensible = (i for i in range(first, len(data)) if _is_extensible(vocab, data[i:]))
    start = next(extensible, len(data))
    kept = 0
    for place, token in enumerate(tokens):
        kept += len(vocab.piece(token))
        if kept > start:
            return tokens[:place]
    return tokens


def _is_extensible(vocab: Vocab, ending: bytes) -> bool:
    """Whether a longer token begins with these bytes."""
    pieces = vocab.sorted_pieces
    place = bisect_right(pieces, ending)
    return place < len(pieces) and pieces[place].startswith(ending)


def _behind(vocab: Vocab, before: bytes, text: bytes) -> list[int] | None:
    """The tokens of `text` behind the text `before`; None if a token has a part of both."""
    try:
        tokens = vocab.tokenize((before + text).decode("utf-8"), parse_special=True)
    except UnicodeDecodeError:  # the tail begins inside a character
        return None
    pieces = [vocab.piece(token) for token in tokens]
    joined = b"".join(pieces)
    # a SentencePiece vocabulary may put a space in front
    position = len(before) - len(before + text) + len(joined)
    if position - len(before) not in (0, 1) or not joined.endswith(before + text):
        return None
    for place, piece in enumerate(pieces):
        if position <= 0:
            return tokens[place:] if position == 0 else None
        position -= len(piece)
    return None


def _whole_characters(data: bytes) -> bytes:
    """The bytes without a character at the end that is not complete."""
    return data.decode("utf-8", "ignore").encode()
