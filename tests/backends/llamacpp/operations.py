"""Random operations on a real scheduler, each result held against a start from nothing."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from shepherd.backends.inprocess.answer import Failed, Finished, Update
from shepherd.backends.llamacpp.cache.sequence import HostCache
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import model_params
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.events import FinishReason
from shepherd.sampling import Sampling
from tests.backends.llamacpp.reference import (
    DETERMINISTIC,
    EXACT,
    TOLERANCE,
    Logits,
    Reference,
    watched_context,
)
from tests.backends.llamacpp.support import settings

START, END, ASSISTANT = 3, 4, 21
WORDS = range(20, 60)
SEQUENCES = 3
LONGEST = 150
TALKS = 8
HOST_BYTES = 4 * 1024 * 1024


@dataclass(eq=False)
class Talk:
    """A conversation's messages, the system's first, each beginning with START."""

    messages: list[list[int]]

    @property
    def prompt(self) -> list[int]:
        return [*(token for message in self.messages for token in message), START, ASSISTANT]


@dataclass(eq=False)
class Request:
    """A job, the logits that it was given, by how many tokens they came behind, and its end."""

    job: Job
    talk: Talk | None
    answer_length: int
    seen: list[tuple[int, Logits]] = field(default_factory=list[tuple[int, Logits]])
    end: Finished | Failed | None = None


class World:
    """A scheduler with more conversations than sequences, and what is done to it at random."""

    def __init__(
        self, path: Path, seed: int, *, shifts: bool = False, deterministic: bool = False
    ) -> None:
        self.random = Random(seed)
        self._tolerance = 0.0 if deterministic else TOLERANCE
        values = DETERMINISTIC if deterministic else EXACT
        exact = settings(**values)
        self._model = NativeModel(path, model_params(exact, {}))
        self._context = watched_context(self._model, exact, SEQUENCES)
        controls = frozenset(self._model.vocab.controls)
        window = self._model.window
        host = HostCache(0 if deterministic and window else HOST_BYTES)
        self.pool = SequencePool(self._context, window, controls, host, shifts=shifts)
        self._context.watch = self._watch
        self.scheduler = Scheduler(self._context, self.pool, self._post)
        self.reference = Reference(path, **values)
        self.requests: list[Request] = []
        self.compared = 0
        self._systems = [self._message(n) for n in (12, 30)]
        self.talks = [Talk([self._systems[0]])]
        self.operations = {
            "new": self.new,
            "extend": self.extend,
            "fork": self.fork,
            "again": self.again,
            "evict": self.evict,
            "cancel": self.cancel,
            "release": self.release,
            "put away": self.swap_out,
            "restore": self.restore,
        }
        self._shares = [1, 5, 2, 1, 2, 2, 2, 1, 2]
        self._deck: list[str] = []

    def operate(self) -> str:
        """Do one random thing, then let the scheduler work a little; what it was.

        Each operation comes as often as its share says, however many numbers a step draws.
        """
        if not self._deck:
            self._deck = self.random.sample(
                list(self.operations), sum(self._shares), counts=self._shares
            )
        name = self._deck.pop()
        self.operations[name]()
        for _ in range(self.random.randrange(6)):
            self._step(start=0.5)
        return name

    def drain(self) -> None:
        """Let everything come to its end."""
        while self.requests:
            self._step(start=1.0)

    def leave_gap(self) -> None:
        """A conversation loses messages while it is in memory, which chance may never bring."""
        self.drain()
        self.new()
        talk = self.talks[-1]
        for _ in range(3):
            self.drain()
            self._ask(talk)
        self.drain()
        del talk.messages[2:4]
        self._ask(talk)
        self.drain()

    def close(self) -> None:
        for part in (self.reference, self._context, self._model):
            part.close()

    def new(self) -> None:
        """A conversation begins; the oldest is forgotten when there are too many."""
        self.talks.append(Talk([self.random.choice(self._systems)]))
        del self.talks[:-TALKS]
        self._ask(self.talks[-1])

    def extend(self) -> None:
        """A conversation that waits for its user goes on."""
        busy = [request.talk for request in self.requests]
        waiting = [talk for talk in self.talks if talk not in busy]
        if waiting:
            self._ask(self.random.choice(waiting))

    def fork(self) -> None:
        """Somebody goes on from an earlier message of a conversation, or changes its end."""
        parent = self.random.choice(self.talks)
        kept = self.random.randint(1, len(parent.messages))
        talk = Talk(list(parent.messages[:kept]))
        if kept > 1 and self.random.random() < 0.5:
            cut = self.random.randint(1, len(talk.messages[-1]))
            talk.messages[-1] = [*talk.messages[-1][:cut], *self._message(4)[1:]]
        self.talks.append(talk)
        del self.talks[:-TALKS]
        self._ask(talk)

    def again(self) -> None:
        """The same prompt once more, whether or not its first answer is there yet."""
        talk = self.random.choice(self.talks)
        self._submit(talk.prompt, None)

    def evict(self) -> None:
        """Whole messages leave a conversation from the middle; it goes on."""
        busy = [request.talk for request in self.requests]
        long = [talk for talk in self.talks if len(talk.messages) > 3 and talk not in busy]
        if long:
            talk = self.random.choice(long)
            first = self.random.randint(1, len(talk.messages) - 3)
            del talk.messages[first : first + self.random.randint(1, 2)]
            self._ask(talk)

    def cancel(self) -> None:
        if self.requests:
            self.random.choice(self.requests).job.cancelled = True

    def release(self) -> None:
        """A client is gone: nobody waits for the job's end."""
        if self.requests:
            request = self.random.choice(self.requests)
            self.scheduler.release(request.job)
            self._settle(request)

    def swap_out(self) -> None:
        self.pool.drop_idle()

    def restore(self) -> None:
        """All idle sequences go to host memory, from where the next prompt comes back."""
        while self.pool.drop_idle():
            pass
        self.extend()

    def _ask(self, talk: Talk) -> None:
        talk.messages.append(self._message(self.random.randint(3, 30)))
        while len(talk.prompt) > LONGEST:
            del talk.messages[1]
        self._submit(talk.prompt, talk)

    def _submit(self, prompt: list[int], talk: Talk | None) -> None:
        job = Job(len(prompt), prompt, Sampling(temperature=0.0), receive=_nothing)
        self.requests.append(Request(job, talk, self.random.randint(1, 10)))
        self.scheduler.queue.submit(job)

    def _message(self, length: int) -> list[int]:
        return [START, *self.random.choices(WORDS, k=length), END]

    def _step(self, start: float) -> None:
        for request in self.requests:
            if not request.job.started and self.random.random() < start:
                self.scheduler.start(request.job, request.answer_length)
        if not self.scheduler.queue.idle:
            self.scheduler.step()
        for request in [r for r in self.requests if r.job.phase is Phase.DONE]:
            self._settle(request)
        for sequence in self.pool.sequences:
            assert self._context.last_position(sequence.id) == len(sequence.tokens) - 1

    def _post(self, job: Job, update: Update) -> None:
        if isinstance(update, Finished | Failed):
            self._request(job).end = update

    def _watch(self, span: Span, logits: Logits | None) -> None:
        """What is computed is what was asked for, in the right place."""
        job = next(
            job
            for job in self.scheduler.queue.jobs
            if job.sequence is not None and job.sequence.id == span.sequence
        )
        assert job.sequence is not None
        mirrored = job.sequence.tokens  # without the earlier batches of this step
        assert mirrored == job.tokens[: len(mirrored)]
        end = span.start + len(span.tokens)
        assert self._context.last_position(span.sequence) == end - 1
        assert list(span.tokens) == job.tokens[span.start : end]
        if logits is not None:
            self._request(job).seen.append((end, logits))

    def _request(self, job: Job) -> Request:
        return next(request for request in self.requests if request.job is job)

    def _settle(self, request: Request) -> None:
        """A request is over: hold all that it was given against the reference."""
        self.requests.remove(request)
        job, talk = request.job, request.talk
        assert not isinstance(request.end, Failed), request.end
        if request.seen:
            self._compare(request)
        if talk is not None and job.generated:
            answer = [START, ASSISTANT, *job.tokens[job.prompt_length :], END]
            talk.messages.append(answer)

    def _compare(self, request: Request) -> None:
        tokens = request.job.tokens
        fresh = self.reference.logits(tokens, [length for length, _ in request.seen])
        for length, logits in request.seen:
            wanted = fresh[length]
            bound = self._tolerance * max(1.0, float(np.abs(wanted).max()))
            worst = float(np.abs(logits - wanted).max())
            assert worst <= bound, f"logits behind {length} tokens differ by {worst}"
            best = float(wanted.max())
            for token in tokens[length : length + 1]:
                assert wanted[token] >= best - 2 * bound, f"token {length} is not the best"
            self.compared += 1
        if isinstance(request.end, Finished) and request.end.reason is FinishReason.STOP:
            assert self.reference.vocab.is_eog(int(fresh[len(tokens)].argmax()))


def _nothing(_: object) -> None:
    """Nobody listens."""
