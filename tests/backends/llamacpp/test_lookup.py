from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import model_params
from shepherd.backends.llamacpp.scheduling.drafts import DraftKind, EscapedPrompt, NgramIndex
from tests.backends.llamacpp.support import settings

IMAGE = -1
"""What stands for a token of an image."""

tokens = st.lists(st.integers(0, 3), max_size=60)


def found_by_search(text: Sequence[int], size: int, max_tokens: int) -> list[int]:
    """What stands behind the last place before the end where the same tokens stand."""
    tail = text[len(text) - size :]
    for end in range(len(text) - 1, size - 1, -1):
        if text[end - size : end] == tail:
            return [text[end + i % (len(text) - end)] for i in range(max_tokens)]
    return []


@given(tokens, st.integers(1, 4), st.integers(1, 20), st.lists(st.integers(1, 9), max_size=20))
def test_drafts_are_what_a_search_finds(
    text: list[int], size: int, max_tokens: int, steps: list[int]
) -> None:
    index = NgramIndex(size)
    length = 0
    for step in [*steps, len(text)]:
        length = min(len(text), length + step)
        now = text[:length]
        expected = found_by_search(now, size, max_tokens) if length >= size else []
        assert index.draft(now, max_tokens) == expected


def test_a_long_text_is_indexed_over_several_calls() -> None:
    index = NgramIndex(2)
    text = [*range(20_000), 5, 6]
    drafts = [index.draft(text, 3) for _ in range(4)]
    assert drafts[-1] == [7, 8, 9]


def test_lines_of_the_prompt_are_found_once_the_answer_escapes_them(llama: Path) -> None:
    model = NativeModel(llama, model_params(settings(), {}))
    try:
        vocab = model.vocab
        lines = 'the hello\n  in "hello" w\nhe in the w\n'
        prompt = [*vocab.tokenize(lines), IMAGE]
        call = vocab.tokenize('{"old": "the hello\\n  in \\"hello\\" w\\nhe in the w\\n"}')
        escaped = EscapedPrompt(vocab, prompt)
        drafted = 0
        for answer in range(1, len(call)):
            draft = escaped.look_up([*prompt, *call[:answer]], 16, DraftKind.SHORT)
            has_escape = b"\\" in b"".join(map(vocab.piece, call[:answer]))
            assert draft is None or has_escape
            drafted += draft is not None and draft.tokens[0] == call[answer]
        assert drafted > len(call) // 3
    finally:
        model.close()
