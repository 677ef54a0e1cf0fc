"""Text may wait a little for more of it; nothing else does, and nothing is lost or reordered."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.inprocess.answer import Finished, Ready, Text, Update
from shepherd.backends.llamacpp.scheduling.job import HOLD_SECONDS, Job, Outbox
from shepherd.events import FinishReason, Stats
from shepherd.sampling import Sampling

FINISHED = Finished(FinishReason.STOP, Stats(), ())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Loop:
    """What the event loop gets, call by call."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[Job, Update]]] = []
        self.clock = Clock()
        self.outbox = Outbox(self.calls.append, self.clock)

    def texts(self) -> list[str]:
        return [
            "".join(update.text for _, update in call if isinstance(update, Text))
            for call in self.calls
        ]


def job() -> Job:
    return Job(1, [1], Sampling(), receive=lambda _: None)


def test_the_first_text_goes_out_at_once_and_further_text_together() -> None:
    loop, one = Loop(), job()
    for piece in ("a", "b", "c"):
        loop.outbox.post(one, Text(piece))
        loop.outbox.flush(hold=True)
    assert loop.texts() == ["a"]
    loop.clock.now += HOLD_SECONDS
    loop.outbox.post(one, Text("d"))
    loop.outbox.flush(hold=True)
    assert loop.texts() == ["a", "bcd"]


def test_another_answers_first_text_takes_what_waits_with_it() -> None:
    loop, one, two = Loop(), job(), job()
    for sender, piece in ((one, "a"), (one, "b"), (two, "x")):
        loop.outbox.post(sender, Text(piece))
        loop.outbox.flush(hold=True)
    assert loop.texts() == ["a", "bx"]


def test_an_end_does_not_wait() -> None:
    loop, one = Loop(), job()
    for update in (Ready(0), Text("a"), Text("b"), FINISHED):
        loop.outbox.post(one, update)
        loop.outbox.flush(hold=True)
    assert [len(call) for call in loop.calls] == [1, 1, 2]


UPDATES = st.one_of(st.text(max_size=2).map(Text), st.just(Ready(0)), st.just(FINISHED))
STEPS = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 2), UPDATES)), st.booleans(), st.floats(0, 0.01))
)


@given(STEPS)
def test_every_update_arrives_once_and_in_order(
    steps: list[tuple[list[tuple[int, Update]], bool, float]],
) -> None:
    loop, jobs = Loop(), [job(), job(), job()]
    posted: list[tuple[Job, Update]] = []
    for updates, hold, seconds in steps:
        for index, update in updates:
            posted.append((jobs[index], update))
            loop.outbox.post(jobs[index], update)
        loop.outbox.flush(hold=hold)
        loop.clock.now += seconds
    loop.outbox.flush()
    arrived = [pair for call in loop.calls for pair in call]
    assert [(id(j), id(u)) for j, u in arrived] == [(id(j), id(u)) for j, u in posted]
