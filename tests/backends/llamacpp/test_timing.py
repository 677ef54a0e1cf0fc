"""On a device that computes later, all speeds are those of the work and not of the calls."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.native.context import NativeContext, Stopwatch
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.draft_model import DraftModel, DraftRequest
from shepherd.backends.llamacpp.scheduling.planner import MAX_UNREAD_SECONDS
from tests.backends.llamacpp.late import CALL_SECONDS, Device, LateContext, LateEngine
from tests.backends.llamacpp.support import settings
from tests.backends.llamacpp.tiny import write_llama

NEAR = 0.15
"""Calls take a little time too."""

OWNER = object()
Open = Callable[..., LateEngine]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("late")
    return write_llama(folder / "late.gguf", context=8_192, layers=1)


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    engines: list[LateEngine] = []

    def engine(device: Device, *, is_known: bool = True) -> LateEngine:
        engines.append(LateEngine(path, device, is_known=is_known))
        return engines[-1]

    yield engine
    for each in engines:
        each.close()


def prompt(length: int, seed: int = 0) -> list[int]:
    return [30 + (seed + i * (seed + 1)) % 60 for i in range(length)]


@pytest.mark.parametrize("token", [2e-3, 1e-4, 1e-5])
def test_the_pace_of_prompts_is_that_of_the_device(opened: Open, token: float) -> None:
    device = Device(batch=0.0, token=token)
    engine = opened(device)
    engine.answer(prompt(2_000), 1)
    assert engine.scheduler.pace.speed == pytest.approx(1 / token, rel=NEAR)


def test_without_waiting_the_pace_would_be_that_of_the_calls(opened: Open) -> None:
    device = Device(batch=0.0, token=2e-3)
    engine = opened(device, is_known=False)
    engine.answer(prompt(2_000), 1)
    assert engine.scheduler.pace.speed > 10 / device.token


@pytest.mark.parametrize("token", [2e-3, 1e-5])
def test_the_seconds_of_a_prompt_are_those_of_its_work(opened: Open, token: float) -> None:
    device = Device(batch=0.001, token=token)
    engine = opened(device)
    stats = engine.answer(prompt(2_000), 4).stats
    batches = engine.context.decoded_batches - len(engine.costs.batches)
    work = batches * (device.batch + CALL_SECONDS) + 2_000 * device.token
    assert stats.prefill_seconds == pytest.approx(work, rel=NEAR)


def test_two_prompts_at_once_get_the_seconds_of_their_batches(opened: Open) -> None:
    device = Device(batch=0.0, token=1e-3)
    engine = opened(device)
    jobs = [engine.submit(prompt(250, seed), 1) for seed in range(2)]
    engine.run()
    each = [engine.ended[job].stats.prefill_seconds for job in jobs]
    assert max(each) == pytest.approx(500 * device.token, rel=NEAR)


def test_a_cancelled_prompt_has_its_seconds_too(opened: Open) -> None:
    device = Device(batch=0.0, token=1e-5)
    engine = opened(device)
    engine.answer(prompt(300, 1), 1)
    job = engine.submit(prompt(4_000), 1)
    for _ in range(2):
        engine.scheduler.step()
    done = len(job.sequence.tokens) - job.cached_tokens if job.sequence else 0
    assert done > 0
    job.cancelled = True
    engine.run()
    seconds = engine.ended[job].stats.prefill_seconds
    assert seconds == pytest.approx(done * device.token, rel=NEAR)


def test_speculation_learns_what_batches_really_take(opened: Open) -> None:
    device = Device(batch=0.01, token=1e-3)
    engine = opened(device)
    engine.answer([30, 31, 32] * 10, 40)
    sizes = {tokens for tokens, _ in engine.costs.batches}
    assert len(sizes) > 1  # with and without drafts
    for tokens, seconds in engine.costs.batches:
        assert seconds == pytest.approx(device.seconds(tokens) + CALL_SECONDS, rel=0.01)


def test_a_restore_counts_only_itself(opened: Open) -> None:
    """Work that was queued before it is not its own."""
    device = Device(batch=0.0, token=1e-4, copied_bytes=1e6)
    engine = opened(device)
    host = engine.pool.host
    size = put_away(engine)
    for _ in range(20):
        device.queue(1_000_000)
        sequence = engine.pool.acquire(Query(packed([*prompt(600, 1), 40])))
        assert sequence is not None
        engine.pool.release(sequence)
        put_away(engine)
    assert engine.pool.counts.hits["host"] == 20
    assert host.seconds(size) == pytest.approx(size / device.copied_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("token", "is_known", "hits"), [(1e-6, True, 0), (1e-2, True, 1), (1e-2, False, 0)]
)
def test_what_is_faster_is_chosen_restoring_or_computing(
    opened: Open, token: float, hits: int, *, is_known: bool
) -> None:
    """The calls take the same time on both devices. Without waiting computing seems free."""
    engine = opened(Device(batch=0.0, token=token), is_known=is_known)
    size = put_away(engine)
    for _ in range(20):
        engine.pool.host.note_restore(size, 0.015)
    engine.answer([*prompt(600, 1), 40], 1)
    assert engine.pool.counts.hits["host"] == hits


def put_away(engine: LateEngine) -> int:
    """Move a conversation of 600 tokens to host memory; the size of its state."""
    if not engine.pool.host.entries:
        engine.answer(prompt(600, 1), 1)
    for sequence in engine.pool.sequences:
        engine.pool.swap_out(sequence)
    (entry,) = engine.pool.host.entries
    return len(entry.state)


def test_an_answer_waits_only_where_its_logits_are_read(opened: Open) -> None:
    device = Device()
    engine = opened(device)
    engine.answer(prompt(20), 1)
    before, batches = device.waits, engine.context.decoded_batches
    engine.answer([*prompt(20), 50], 30)
    assert device.waits - before == engine.context.decoded_batches - batches


def test_a_fast_device_is_kept_busy_and_never_far_behind(opened: Open) -> None:
    device = Device(batch=0.0, token=2e-5)
    engine = opened(device)
    engine.answer(prompt(600, 1), 1)
    before, batches = device.waits, engine.context.decoded_batches
    device.most_queued = 0.0
    engine.answer(prompt(4_000, 2), 1)
    assert device.waits - before < (engine.context.decoded_batches - batches) / 2
    assert device.most_queued <= MAX_UNREAD_SECONDS * (1 + NEAR)


def test_a_draft_takes_as_long_as_its_work(path: Path) -> None:
    device = Device(batch=0.01, token=1e-3)
    own = settings()
    model = NativeModel(path, model_params(own, {}))
    context = LateContext(model, context_params(own, 1, model.traits), device)
    draft = DraftModel(model, context)
    for _ in range(4):
        draft.draft([DraftRequest(OWNER, 0, prompt(5), 4)])
    assert device.now >= device.busy_until
    assert draft.seconds_per_token == pytest.approx(device.seconds(1), rel=0.3)
    draft.draft([DraftRequest(OWNER, 0, prompt(900), 4)])  # is still behind
    assert device.now >= device.busy_until
    draft.close()


def test_on_a_cpu_nobody_waits(path: Path) -> None:
    class Watched(NativeContext):
        waits = 0

        def synchronize(self) -> None:
            self.waits += 1

    own = settings()
    model = NativeModel(path, model_params(own, {}))
    context = Watched(model, context_params(own, 1, model.traits))
    if context.returns_early:
        pytest.skip("llama.cpp has a GPU here")
    watch = Stopwatch(context)
    assert watch.finished() >= watch.now() - 1
    assert context.waits == 0
    context.close()
    model.close()
