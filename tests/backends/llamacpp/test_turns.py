"""Long prompts are read one after the other on a CPU, and each one's turn comes."""

from itertools import count
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.inprocess.answer import Finished
from shepherd.backends.llamacpp.native.devices import CPU_FLASH_LIMITS, CPU_LIMITS
from shepherd.backends.llamacpp.scheduling import queue
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.backends.llamacpp.scheduling.planner import PrefillPace
from shepherd.backends.llamacpp.scheduling.queue import SHORT_PROMPT, next_in_turn, overtaken_job
from shepherd.sampling import Sampling
from tests.backends.llamacpp.floor import Floor, prompt
from tests.backends.llamacpp.tiny import write_llama

SPEED = 250.0
LENGTHS = st.integers(1, 8_000)
WAITS = st.floats(0, 100)


@pytest.fixture(scope="module")
def long_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("turns") / "long.gguf"
    return write_llama(path, context=16_384, layers=1)


def waiting(missing: int, seconds: float = 0.0) -> Job:
    job = Job(missing, [1] * missing, Sampling(), lambda update: None)
    job.missing_tokens = missing
    job.submitted = monotonic() - seconds
    return job


def reading(missing: int, seconds: float = 0.0) -> Job:
    job = waiting(missing, seconds)
    job.phase = Phase.PREFILL
    return job


def readers(floor: Floor) -> list[Job]:
    """Jobs whose long prompts are being read."""
    reading = [job for job in floor.scheduler.queue.active if not job.prompt_done]
    return [job for job in reading if job.missing_tokens > SHORT_PROMPT]


@given(st.lists(st.tuples(LENGTHS, WAITS), min_size=1, max_size=6), LENGTHS)
def test_no_long_prompt_begins_beside_another(jobs: list[tuple[int, float]], length: int) -> None:
    reader = reading(SHORT_PROMPT + length)
    chosen = next_in_turn([waiting(*job) for job in jobs], [reader], SPEED)
    if chosen is None:
        assert all(missing > SHORT_PROMPT for missing, _ in jobs)
    else:
        assert chosen.missing_tokens <= SHORT_PROMPT
    assert next_in_turn([waiting(*job) for job in jobs], [], SPEED) is not None


@given(LENGTHS, LENGTHS)
def test_of_two_that_come_together_the_shorter_goes_first(one: int, other: int) -> None:
    jobs = [waiting(one), waiting(other)]
    chosen = next_in_turn(jobs, [], SPEED)
    assert chosen is not None
    assert chosen.missing_tokens <= max(min(one, other), SHORT_PROMPT)


def test_of_two_alike_the_older_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to compare them."""
    jobs = [waiting(100), waiting(100)]
    seconds = count(monotonic() + 1)
    monkeypatch.setattr(queue, "monotonic", lambda: next(seconds))
    assert next_in_turn(jobs, [], SPEED) is jobs[0]


@given(LENGTHS, LENGTHS)
def test_each_turn_comes(length: int, other: int) -> None:
    """Whatever comes new, a prompt that has waited long enough is before it."""
    late = waiting(length, 40 * (1 + length / SPEED) ** 1.5)
    assert next_in_turn([waiting(other), late], [], SPEED) is late
    assert overtaken_job([waiting(other)], [late_reader(length)], SPEED) is None


def late_reader(length: int) -> Job:
    return reading(length, 40 * (1 + length / SPEED) ** 1.5)


def test_a_much_shorter_prompt_overtakes() -> None:
    reader = reading(4_000)
    assert overtaken_job([waiting(1_900)], [reader], SPEED) is reader
    assert overtaken_job([waiting(2_100)], [reader], SPEED) is None
    assert overtaken_job([waiting(SHORT_PROMPT)], [reader], SPEED) is None
    assert overtaken_job([], [reader], SPEED) is None


def test_prompts_are_read_one_after_the_other(long_llama: Path) -> None:
    floor = Floor(long_llama, 4)
    jobs = [floor.start(prompt(length, length), 1) for length in (1_500, 1_450, 400, 1_400)]
    order: list[Job] = []
    while not floor.scheduler.queue.idle:
        floor.scheduler.step()
        assert len(readers(floor)) <= 1
        order += [job for job in jobs if job.phase is Phase.DONE and job not in order]
    assert order[0] is jobs[2]
    assert len(order) == 4
    floor.close()


def test_an_overtaken_prompt_goes_on_where_it_was(long_llama: Path) -> None:
    """Its answer is the same, and what it has read itself does not count as cached."""
    alone = Floor(long_llama, 4)
    job = alone.start(prompt(1_600, 1), 8)
    alone.run()
    expected = alone.answer(job)
    alone.close()
    floor = Floor(long_llama, 4)
    long = floor.start(prompt(1_600, 1), 8)
    floor.scheduler.step()
    assert long.sequence is not None
    read = len(long.sequence.tokens)
    assert 0 < read < 600
    short = floor.start(prompt(500, 2), 8)
    floor.scheduler.step()
    assert long.sequence is None
    floor.run()
    assert floor.answer(long) == expected
    ended = [job for job, update in floor.told if isinstance(update, Finished)]
    assert ended == [short, long]
    assert long.cached_tokens == 0
    decoded = sum(len(span.tokens) for batch in floor.context.batches for span in batch)
    assert decoded <= 1_600 + 500 + 2 * 8 + 1  # nothing was read twice
    floor.close()


def test_nobody_overtakes_if_there_is_no_other_sequence(long_llama: Path) -> None:
    """What was read could be lost."""
    floor = Floor(long_llama, 1)
    long = floor.start(prompt(3_000, 1), 1)
    floor.scheduler.step()
    floor.start(prompt(500, 2), 1)
    while not long.prompt_done:
        assert long.sequence is not None
        floor.scheduler.step()
    floor.run()
    floor.close()


def test_a_long_prompt_ends_beside_ever_new_ones_that_overtake_it(long_llama: Path) -> None:
    floor = Floor(long_llama, 4)
    long = floor.start(prompt(1_500), 1)
    number = 0
    while not long.prompt_done:
        while len(floor.scheduler.queue.jobs) < 4:
            number += 1
            floor.start(prompt(300, number), 1)
        floor.scheduler.step()
        assert number < 500
    floor.close()


def test_the_answers_of_one_request_share_its_prompt(long_llama: Path) -> None:
    floor = Floor(long_llama, 4)
    request = object()
    jobs = [floor.start(prompt(1_000), 4, request) for _ in range(4)]
    floor.run()
    assert len({floor.answer(job) for job in jobs}) == 1
    decoded = sum(len(span.tokens) for batch in floor.context.batches for span in batch)
    assert decoded <= 1_000 + 4 * 5
    floor.close()


def test_where_others_cost_nothing_prompts_are_read_together(long_llama: Path) -> None:
    floor = Floor(long_llama, 4, own_cells=True)
    for seed in range(3):
        floor.start(prompt(2_000, seed), 1)
    floor.scheduler.step()
    assert len(readers(floor)) == 3
    floor.close()


@given(st.integers(1, 3_000))
def test_steps_have_no_padded_rows_with_flash_attention(tokens: int) -> None:
    pace = PrefillPace(512, CPU_FLASH_LIMITS)
    full = pace.without_remainder(tokens)
    assert 0 < full <= tokens < full + 128
    assert full % 128 == 0 or full == tokens < 64 or full == 64 <= tokens <= 128
    assert PrefillPace(512, CPU_LIMITS).without_remainder(tokens) == tokens
