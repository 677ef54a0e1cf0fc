"""Tenants share an engine by its seconds; the clock ticks with each token that is computed."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.inprocess.answer import Finished, Queued
from shepherd.backends.llamacpp.native.context import Interrupt, Span
from shepherd.backends.llamacpp.scheduling.job import Account, Job, Phase
from shepherd.backends.tenant import Tenant, TenantKind, serving_tenant
from shepherd.errors import BusyError
from tests.backends.llamacpp.floor import STUCK, Floor, prompt
from tests.backends.llamacpp.support import PUP, Recorder, conversation, loaded
from tests.backends.llamacpp.tiny import write_llama
from tests.examples import few

TICK = 0.05
"""Seconds that a token takes."""

ROOM = 10**8
"""Bytes of host memory, which keep the cells of those who are parked."""

PERSON = Tenant("person", kind=TenantKind.INTERACTIVE)
AGENT = Tenant("agent")
BATCH = Tenant("batch", kind=TenantKind.BATCH)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fair") / "llama.gguf"
    return write_llama(path, context=2_048, layers=1)


class Engine(Floor):
    """A floor for tenants, whose seconds are the tokens that it computes."""

    def __init__(self, path: Path, parallel: int, **options: Any) -> None:
        self.time = 0.0
        super().__init__(path, parallel, clock=lambda: self.time, **options)
        self.context.decode = self._timed(self.context.decode)

    def come(self, tenant: Tenant, length: int, answer: int, seed: int = 0) -> Job:
        job = Job(length, prompt(length, seed), STUCK, lambda update: None)
        job.account = Account(tenant)
        self.scheduler.queue.submit(job)
        self.scheduler.start(job, answer)
        return job

    def step_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.scheduler.step()

    def ended(self) -> list[Job]:
        return [job for job, update in self.told if isinstance(update, Finished)]

    def _timed(self, decode: Callable[..., int]) -> Callable[..., int]:
        def timed(spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
            code = decode(spans, interrupt)
            self.time += TICK * sum(len(span.tokens) for span in spans)
            return code

        return timed


tenants = st.lists(
    st.builds(
        Tenant,
        st.sampled_from("abcde"),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from(TenantKind),
    ),
    min_size=2,
    max_size=4,
    unique_by=lambda tenant: tenant.name,
)


@settings(max_examples=4, deadline=None)
@given(tenants, st.integers(1, 3), st.data())
def test_who_always_asks_gets_seconds_by_share(
    llama: Path, who: list[Tenant], parallel: int, data: st.DataObject
) -> None:
    jobs = {t.name: data.draw(st.integers(1, 4), label=f"jobs of {t.name}") for t in who}
    engine = Engine(llama, parallel, host=ROOM)
    used, open_jobs, number = Counter[str](), list[tuple[Tenant, Job]](), 0
    try:
        while engine.time < few(150, 50) * len(who):
            for tenant, job in [pair for pair in open_jobs if pair[1].phase is Phase.DONE]:
                open_jobs.remove((tenant, job))
                used[tenant.name] += len(job.tokens) - job.cached_tokens
            for tenant in who:
                while sum(one is tenant for one, _ in open_jobs) < jobs[tenant.name]:
                    number += 1
                    open_jobs.append((tenant, engine.come(tenant, 150, 20, seed=number)))
            engine.scheduler.step()
        accounts = {job.account.tenant.name: job.account for _, job in open_jobs}
    finally:
        engine.close()
    weighted = [accounts[tenant.name].used for tenant in who]
    # Kinds differ by 10 s at most, answers by 10, and a step ends before it counts.
    assert max(weighted) - min(weighted) <= 30
    for tenant in who:  # what is charged is what was computed, but for the jobs that run
        computed = TICK * used[tenant.name] / tenant.share
        assert abs(computed - accounts[tenant.name].used) <= 60 / tenant.share


def test_a_person_comes_before_all_others(llama: Path) -> None:
    engine = Engine(llama, 3)
    try:
        others = [engine.come(AGENT, 600, 40, seed=1), engine.come(BATCH, 600, 40, seed=2)]
        engine.step_until(lambda: engine.time > 3)
        person = engine.come(PERSON, 60, 10, seed=3)
        began = engine.time
        engine.step_until(lambda: person.prompt_done)
        assert engine.time - began <= TICK * 60 + 0.2  # as if it were alone
        engine.run()
        assert {*engine.ended()} == {person, *others}
    finally:
        engine.close()


def test_a_parked_answer_goes_on_without_a_lost_token(llama: Path) -> None:
    alone, shared = Engine(llama, 1, host=ROOM), Engine(llama, 1, host=ROOM)
    try:
        expected = alone.come(BATCH, 50, 200)
        alone.run()
        parked = shared.come(BATCH, 50, 200)
        shared.step_until(lambda: parked.generated > 100)
        person = shared.come(PERSON, 60, 10, seed=3)
        shared.step_until(lambda: person in shared.ended())
        assert parked not in shared.ended()
        shared.run()
        assert shared.answer(parked) == alone.answer(expected)
        assert parked.cached_tokens == 0  # what it had itself is no hit
    finally:
        alone.close()
        shared.close()


def test_nobody_starves_behind_people(llama: Path) -> None:
    engine = Engine(llama, 1)
    try:
        batch = engine.come(BATCH, 200, 20)
        while batch not in engine.ended():
            assert engine.time < 120
            if sum(job.account.tenant == PERSON for job in engine.scheduler.queue.jobs) < 2:
                engine.come(PERSON, 60, 10, seed=int(engine.time) + 1)
            engine.scheduler.step()
    finally:
        engine.close()


def test_those_who_wait_know_their_place(llama: Path) -> None:
    engine = Engine(llama, 1)
    try:
        engine.come(AGENT, 100, 50)
        engine.scheduler.step()
        second = engine.come(AGENT, 100, 5, seed=1)
        third = engine.come(BATCH, 100, 5, seed=2)
        engine.scheduler.step()
        first = engine.come(PERSON, 100, 5, seed=3)
        engine.run()
        assert places(engine, second)[0] == 1
        assert places(engine, third)[0] == 2
        assert places(engine, third)[-1] == 1
        assert first in engine.ended()
    finally:
        engine.close()


def places(engine: Engine, job: Job) -> list[int]:
    """What the job was told; never the same twice."""
    told = [u.place for one, u in engine.told if one is job and isinstance(u, Queued)]
    assert all(now != before for before, now in pairwise(told))
    return told


async def test_one_tenant_does_not_fill_the_queue_of_another() -> None:
    async with loaded(PUP, parallel=1, max_queue=0) as backend:
        session = conversation("Hello")
        with serving_tenant(AGENT):
            async with await backend.prefill_session(session, Recorder()):
                with pytest.raises(BusyError):
                    await backend.prefill_session(session, Recorder())
                with serving_tenant(PERSON):
                    async with await backend.prefill_session(session, Recorder()):
                        states = [request.tenant for request in backend.status.requests]
        assert sorted(states) == ["agent", "person"]
