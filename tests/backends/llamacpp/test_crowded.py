"""More conversations than the memory holds: what was read comes back, and is not read again."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from shepherd.backends.llamacpp.cache.prefixes import Query, packed
from shepherd.backends.llamacpp.scheduling.job import Job, Phase
from tests.backends.llamacpp.floor import Floor
from tests.backends.llamacpp.rooms import TOLERANCE, Room, difference, opened
from tests.backends.llamacpp.tiny import write_llama

CELLS = 1024
HOST_BYTES = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def small_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("crowded") / "small.gguf", context=CELLS, layers=1)


def words(chance: Random, count: int) -> list[int]:
    return [chance.randrange(20, 60) for _ in range(count)]


@dataclass(eq=False)
class Agent:
    """A conversation: its tokens, the turns that are left, and when the next one comes."""

    tokens: list[int]
    turns: int
    due: int = 0
    job: Job | None = None
    least: int = 0
    """Tokens that must be computed, even if nothing is ever forgotten."""

    def work(self, floor: Floor, step: int, chance: Random) -> None:
        """End a turn that is done, and begin the next one when its tool has answered."""
        if self.job is not None and self.job.phase is Phase.DONE:
            # The last token of an answer is decoded with the next prompt.
            self.least += len(self.job.tokens) - 1 - self.least
            result = words(chance, chance.randrange(20, 60))
            self.tokens = [*self.job.tokens, *result]
            self.turns, self.due, self.job = self.turns - 1, step + chance.randrange(30), None
        if self.job is None and self.turns and step >= self.due:
            self.job = floor.start(self.tokens, 20)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_put_away_is_not_read_again(small_llama: Path, seed: int) -> None:
    """Four agents need half as many cells again as there are."""
    chance = Random(seed)
    floor = Floor(small_llama, 4, host=HOST_BYTES)
    floor.context.decoded_tokens = 0
    agents = [Agent(words(chance, 372), turns=6) for _ in range(4)]
    step = 0
    while any(agent.turns or agent.job for agent in agents):
        step += 1
        for agent in agents:
            agent.work(floor, step, chance)
        floor.scheduler.step()
        assert step < 10_000
    assert floor.pool.counts.hits["host"] > 5
    assert floor.context.decoded_tokens <= sum(agent.least for agent in agents)
    floor.close()


def put_away(room: Room, prompt: list[int]) -> None:
    """Read a prompt, and move it into host memory."""
    sequence, _, _ = room.run(prompt)
    room.pool.release(sequence)
    room.pool.swap_out(sequence)


def test_a_state_waits_as_long_as_reading_takes(small_llama: Path) -> None:
    """With a beginning that others share, reading may fit where the whole state does not."""
    chance = Random(1)
    system = words(chance, 300)
    with opened(small_llama, 3, host=HOST_BYTES) as room:
        prompt = [*system, *words(chance, 200)]
        put_away(room, prompt)
        running, _, _ = room.run([*system, *words(chance, 300)])
        longer = [*prompt, 20]
        assert room.pool.acquire(Query(packed(longer)), speed=100.0, waited=1.9) is None
        again = room.pool.acquire(Query(packed(longer)), speed=100.0, waited=2.1)
        assert again is not None
        assert len(again.tokens) == len(system)
        room.pool.release(again)
        room.pool.release(running)
        back = room.pool.acquire(Query(packed(longer)), speed=100.0)
        assert back is not None
        assert back.restored == len(prompt)


def test_reading_waits_where_it_does_not_fit_either(small_llama: Path) -> None:
    chance = Random(2)
    with opened(small_llama, 2, host=HOST_BYTES) as room:
        prompt = words(chance, 500)
        put_away(room, prompt)
        room.run(words(chance, 600))
        assert room.pool.acquire(Query(packed(prompt)), speed=100.0, waited=1_000.0) is None


def test_a_state_that_is_longer_than_its_prompt_is_not_waited_for(small_llama: Path) -> None:
    """It may need more memory than there will be soon."""
    chance = Random(3)
    with opened(small_llama, 2, host=HOST_BYTES) as room:
        talk = words(chance, 900)
        put_away(room, talk)
        room.run(words(chance, 300))
        sequence = room.pool.acquire(Query(packed([*talk[:400], 20])), speed=100.0)
        assert sequence is not None
        assert not sequence.tokens


def test_what_comes_back_shares_its_beginning_again(small_llama: Path) -> None:
    chance = Random(4)
    system = words(chance, 300)
    with opened(small_llama, 3, host=HOST_BYTES) as room:
        prompt = [*system, *words(chance, 200)]
        put_away(room, prompt)
        room.run([*system, *words(chance, 200)])
        back, logits, cached = room.run([*prompt, 20])
        assert back.restored == cached == len(prompt)
        room.run(words(chance, 300))  # there would be no room for 1,301 tokens
        room.check()
    with opened(small_llama, 1) as room:
        assert difference(logits, room.fresh([*prompt, 20])) < TOLERANCE
