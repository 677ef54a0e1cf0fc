"""Checkpoints: where they are taken, and how many are kept."""

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.cache import sequence as module
from shepherd.backends.llamacpp.cache.sequence import (
    Checkpoint,
    Checkpoints,
    marks,
    message_starts,
)
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import conversation, generate, loaded

START, END = 1, 2
CONTROLS = frozenset({START, END})


def test_messages_start_at_the_control_token_that_the_prompt_ends_with() -> None:
    prompt = [START, 9, 9, END, START, 9, END, START, 8]
    assert message_starts(prompt, CONTROLS) == [0, 4, 7]
    assert message_starts([9, 9], CONTROLS) == []


@given(prompt=st.lists(st.sampled_from([START, END, *range(8, 20)]), min_size=1, max_size=200))
def test_marks_are_in_order_and_one_is_close_to_the_end(prompt: list[int]) -> None:
    found = marks(prompt, CONTROLS)
    assert found == sorted(set(found))
    assert all(0 < mark < len(prompt) for mark in found)
    assert len(prompt) - max(found, default=0) <= module.MAX_REREAD + 4


def test_the_last_messages_and_distant_ones_are_marked() -> None:
    message = [START, *([9] * 199)]
    prompt = [*(message * 20), START, 8]
    found = marks(prompt, CONTROLS)
    assert found[-2:] == [3800, 4000]
    assert all(b - a >= module.CHECKPOINT_DISTANCE for a, b in pairwise(found[:-1]))
    assert found[0] < 2 * module.CHECKPOINT_DISTANCE


@given(length=st.integers(1, 40_000), behind=st.floats(0, 1))
def test_a_text_that_differs_inside_its_long_last_message_is_read_from_near_there(
    length: int, behind: float
) -> None:
    prompt = [START, *([9] * 9), START, *([9] * length), START, 8]
    end = len(prompt) - 2
    found = marks(prompt, CONTROLS)
    same = end - round(behind * length)
    kept = max(mark for mark in found if mark <= same)
    distance = module.CHECKPOINT_DISTANCE
    assert same - kept <= max(end - same, distance) + distance
    assert len(found) <= module.MAX_CHECKPOINTS


async def test_another_question_about_the_same_text_reads_its_end(tmp_path: Path) -> None:
    model = tiny.write_mamba(tmp_path / "mamba.gguf", context=4096)
    text = "hello the in " * 400
    async with loaded(model) as backend:
        first = await generate(backend, conversation(f"{text} w"), max_tokens=2)
        other = await generate(backend, conversation(f"{text} he"), max_tokens=2)
    assert first.stats.prompt_tokens > 3 * module.CHECKPOINT_DISTANCE
    read = other.stats.prompt_tokens - other.stats.cached_tokens
    assert read <= module.CHECKPOINT_DISTANCE + 64


@given(lengths=st.lists(st.integers(1, 1000), min_size=1, max_size=60))
def test_few_are_kept_and_never_one_behind_a_cut(lengths: list[int]) -> None:
    kept = Checkpoints()
    for length in lengths:
        kept.add(Checkpoint(length, bytearray(8)))
        assert kept.lengths[-1] == length
        assert len(kept.items) <= module.MAX_CHECKPOINTS
    middle = lengths[-1] // 2
    shared = kept.shared(middle)
    kept.cut(middle)
    assert len(shared.items) == len(kept.items)
    assert kept.lengths == shared.lengths
    assert all(length <= middle for length in kept.lengths)


def test_big_ones_push_out_the_oldest_but_the_last_stays() -> None:
    kept = Checkpoints()
    for length in (10, 20, 30):
        kept.add(Checkpoint(length, bytearray(module.MAX_CHECKPOINT_BYTES // 2)))
    assert kept.lengths == [20, 30]
    assert kept.bytes <= module.MAX_CHECKPOINT_BYTES
    kept.add(Checkpoint(40, bytearray(module.MAX_CHECKPOINT_BYTES + 1)))
    assert len(kept.items) == 1
