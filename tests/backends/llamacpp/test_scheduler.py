"""Who waits for whom: what each step decodes, for which requests."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.backends.inprocess.answer import Failed, Finished, Queued
from shepherd.backends.llamacpp.native.devices import CPU_LIMITS
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.backends.llamacpp.scheduling.planner import SHARED_BATCH_DIVISOR
from shepherd.errors import ContextFullError
from shepherd.events import FinishReason
from tests.backends.llamacpp.floor import STUCK, Floor, prompt
from tests.backends.llamacpp.tiny import write_llama

STEPS_OF_25 = replace(CPU_LIMITS, initial_chunk=25, min_chunk=25, min_shared_chunk=25)


def test_a_long_prompt_delays_other_streams_by_one_chunk(tmp_path: Path) -> None:
    floor = Floor(write_llama(tmp_path / "long.gguf", context=4_096, layers=1), 4)
    streams = [floor.start([30 + number, 40, 50], 200) for number in range(3)]
    while any(job.phase is not Phase.GENERATING for job in streams):
        floor.scheduler.step()
    floor.context.batches.clear()
    long = floor.start([30 + i % 60 for i in range(2_000)], 1)
    said = [job.generated for job in streams]
    while long.phase is not Phase.DONE:
        floor.scheduler.step()
        said = [before + 1 for before in said]
        assert [job.generated for job in streams] == said  # each says a token in every step
    chunk = floor.context.batch_size // SHARED_BATCH_DIVISOR
    assert all(
        sum(len(span.tokens) for span in batch) <= 3 + chunk for batch in floor.context.batches
    )
    assert len(floor.context.batches) >= 2_000 // chunk
    floor.close()


def test_a_request_of_many_answers_leaves_a_sequence_to_another(llama: Path) -> None:
    """Its further answers wait meanwhile, and are what they are without the other request."""
    alone = Floor(llama, 2)
    job = alone.start([30] * 30, 60)
    alone.run()
    answer = alone.answer(job)
    alone.close()
    floor = Floor(llama, 2)
    request = object()
    many = [floor.start([30] * 30, 60, request) for _ in range(4)]
    while sum(job.phase is Phase.GENERATING for job in many) < 2:
        floor.scheduler.step()
    other = floor.start([31] * 30, 10)
    while other.phase is not Phase.DONE:
        floor.scheduler.step()
    assert all(job.phase is not Phase.DONE for job in many)
    assert many[0].phase is Phase.GENERATING  # one goes on
    floor.run()
    assert [floor.answer(job) for job in many] == [answer] * 4
    floor.close()


def test_further_answers_are_not_put_off_without_end(llama: Path) -> None:
    floor = Floor(llama, 1)
    request = object()
    many = [floor.start([30] * 30, 10, request) for _ in range(2)]
    others = [floor.start([31 + number] * 30, 10) for number in range(4)]
    while many[1].phase is not Phase.DONE:
        floor.scheduler.step()
    assert any(job.phase is not Phase.DONE for job in others)
    floor.close()


def test_a_prompt_is_read_no_further_when_its_request_is_cancelled(tmp_path: Path) -> None:
    floor = Floor(write_llama(tmp_path / "long.gguf", context=8_192, layers=1), 1)
    job = floor.start([30 + i % 60 for i in range(5_000)], 1)
    for _ in range(2):
        floor.scheduler.step()
    read = floor.context.decoded_tokens
    assert 0 < read < 5_000
    job.cancelled = True
    floor.run()
    assert floor.context.decoded_tokens == read
    floor.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_when_memory_is_full_only_the_youngest_pays(llama: Path, ahead: bool) -> None:  # noqa: FBT001
    """It loses its place, keeps what it said, and says the rest later; nobody hears of an error."""
    alone: list[tuple[int, ...]] = []
    for number in range(3):
        floor = Floor(llama, 1)
        job = floor.start([30 + number] * 30, 60)
        floor.run()
        alone.append(floor.answer(job))
        floor.close()
    floor = Floor(llama, 3, ahead=ahead)
    floor.context.most = 200
    jobs = [floor.start([30 + number] * 30, 60) for number in range(3)]
    waited: set[int] = set()
    while not floor.scheduler.queue.idle:
        before = [job.generated for job in jobs]
        floor.scheduler.step()
        waited |= {i for i, job in enumerate(jobs) if job.phase is Phase.WAITING}
        assert all(job.generated >= length for job, length in zip(jobs, before, strict=True))
    assert floor.context.refused
    assert waited == {2}
    assert [floor.answer(job) for job in jobs] == alone
    floor.close()


def test_drafts_never_cost_anybody_a_place(llama: Path) -> None:
    """They are left out first; only where there is no room for the answers one waits."""
    floor = Floor(llama, 2, ahead=True)
    jobs = [floor.start([30 + number] * 30, 60) for number in range(2)]
    floor.context.most = 150
    floor.scheduler.step()
    while jobs[1].phase is not Phase.WAITING:
        floor.context.refused.clear()
        floor.scheduler.step()
    assert [len(span.tokens) for span in floor.context.refused[-1]] == [1, 1]
    assert [len(span.tokens) for span in floor.context.refused[0]] != [1, 1]
    floor.run()
    assert all(len(floor.answer(job)) == 60 for job in jobs)
    floor.close()


def test_a_waiting_request_can_be_cancelled(llama: Path) -> None:
    floor = Floor(llama, 1)
    first, second, third = (floor.start([30 + number] * 5, 20) for number in range(3))
    for _ in range(5):
        floor.scheduler.step()
    assert second.phase is third.phase is Phase.WAITING
    second.cancelled = True
    floor.scheduler.step()
    (update,) = [u for job, u in floor.told if job is second and not isinstance(u, Queued)]
    assert isinstance(update, Finished)
    assert update.reason is FinishReason.CANCELLED
    floor.run()
    assert len(floor.answer(first)) == len(floor.answer(third)) == 20
    assert not any(sequence.busy for sequence in floor.pool.sequences)
    floor.close()


@pytest.mark.parametrize("at", [0, 1, 3, 8])
def test_cancelling_one_leaves_the_others_as_they_were(llama: Path, at: int) -> None:
    answers: list[tuple[int, ...]] = []
    for cancels in (False, True):
        floor = Floor(llama, 3, ahead=True)
        jobs = [floor.start([30 + number] * 40, 30) for number in range(3)]
        for _ in range(at):
            floor.scheduler.step()
        jobs[1].cancelled = cancels
        floor.run()
        answers.append(floor.answer(jobs[0]) + floor.answer(jobs[2]))
        floor.close()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("ahead", [False, True])
def test_alone_in_a_full_memory_an_answer_ends_with_what_it_said(
    llama: Path,
    ahead: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    floor = Floor(llama, 1, ahead=ahead)
    job = floor.start([30] * 30, 60)
    floor.run()
    whole = floor.answer(job)
    floor.close()
    floor = Floor(llama, 1, ahead=ahead)
    floor.context.most = 50
    job = floor.start([30] * 30, 60)
    floor.run()
    (finished,) = [u for j, u in floor.told if j is job and isinstance(u, Finished)]
    assert finished.reason is FinishReason.LENGTH
    assert finished.tokens == whole[: 50 - 30 + 1]  # the last one is said and not in memory
    assert not any(sequence.busy for sequence in floor.pool.sequences)
    assert floor.scheduler.queue.jobs == []
    floor.context.most = 10**9
    again = floor.start([31] * 30, 5)
    floor.run()
    assert len(floor.answer(again)) == 5
    floor.close()


def test_alone_in_a_full_memory_a_prompt_that_does_not_fit_is_refused(llama: Path) -> None:
    floor = Floor(llama, 1)
    floor.may_fail = True
    floor.context.most = 20
    job = floor.start([30] * 30, 60)
    floor.run()
    (failed,) = [u for j, u in floor.told if j is job and isinstance(u, Failed)]
    assert isinstance(failed.error, ContextFullError)
    assert "request (30 tokens) exceeds the available context size" in str(failed.error)
    assert failed.error.tokens_over == 1
    assert job.phase is Phase.DONE
    assert not any(sequence.busy for sequence in floor.pool.sequences)
    floor.close()


def test_a_ready_prompt_is_noted_beside_one_that_was_started(llama: Path) -> None:
    floor = Floor(llama, 2)
    unstarted = Job(20, prompt(20), STUCK, lambda update: None)
    floor.scheduler.queue.submit(unstarted)
    started = floor.start(prompt(20, 1), 1)
    floor.scheduler.step()
    assert (unstarted.prompt_done, started.prompt_done) == (True, True)
    assert floor.scheduler.pop_ready()
    floor.close()


def steps_until_ready(floor: Floor, job: Job) -> int:
    """How many steps a job's prompt takes from now on."""
    before = len(floor.context.batches)
    while not job.prompt_done:
        floor.scheduler.step()
    return len(floor.context.batches) - before


@pytest.fixture(scope="module")
def long_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.gguf"
    return write_llama(path, context=16_384, layers=1)


@pytest.mark.parametrize("longs", [[1_000], [12_000], [3_000] * 3, [6_000, 12, 900]])
def test_a_short_prompt_does_not_wait_for_longer_ones(long_llama: Path, longs: list[int]) -> None:
    floor = Floor(long_llama, 4)
    for seed, length in enumerate(longs):
        floor.start(prompt(length, seed), 1)
    floor.scheduler.step()
    short = floor.start(prompt(30, 7), 1)
    assert steps_until_ready(floor, short) <= 2
    floor.close()


def test_a_long_prompt_goes_on_beside_ever_new_short_ones(long_llama: Path) -> None:
    floor = Floor(long_llama, 4)
    long = floor.start(prompt(1_500), 1)
    floor.scheduler.step()
    assert long.sequence is not None
    number = 0
    while not long.prompt_done:
        number += 1
        while len(floor.scheduler.queue.jobs) < 4:
            floor.start(prompt(250, number), 1)
        read = len(long.sequence.tokens)
        floor.scheduler.step()
        assert (
            long.prompt_done
            or len(long.sequence.tokens) - read >= floor.context.limits.min_shared_chunk // 8
        )
    floor.close()


def test_prompts_side_by_side_take_no_more_steps_than_one_of_their_length(
    long_llama: Path,
) -> None:
    """Nothing is measured by a clock that stands still, so that each step has 25 tokens."""
    steps: list[int] = []
    for lengths in ([1_000], [250] * 4, [625, 30, 220, 125]):
        floor = Floor(long_llama, 4, limits=STEPS_OF_25, clock=lambda: 0.0)
        for seed, length in enumerate(lengths):
            floor.scheduler.queue.submit(
                Job(length, prompt(length, seed), STUCK, receive=lambda update: None)
            )
        floor.run()
        assert floor.context.decoded_tokens == 1_000
        steps.append(floor.context.decoded_batches)
        floor.close()
    assert steps == [40, 40, 40]
