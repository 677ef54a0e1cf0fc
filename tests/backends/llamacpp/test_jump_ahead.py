"""Text that a grammar forces is not sampled, and nothing else about the answer changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.inprocess.answer import Failed, Finished, Text, Update
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.sampling.guard import MAX_TAIL, forced_tokens, without_extensible
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.events import FinishReason
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import PUP, held_to, settings
from tests.backends.llamacpp.test_fragments import TEXTS, VOCABULARIES
from tests.backends.llamacpp.tiny import write_llama
from tests.examples import examples

EXACT = settings(flash_attention="off", cache_type_k="f32", cache_type_v="f32", context_size=512)
GREEDY = Sampling(temperature=0.0)
CALL = r"""root ::= "{\"name\": \"write_file\", \"arguments\": {\"path\": \"" [a-z]{4} "\", \"mode\": " ("true" | "false") ", \"encoding\": \"utf-8\"}}" """  # noqa: E501 - a grammar is easier to read on one line
LITERAL = "The grey dog watches 42 sheep.\nThen it says: “Good!”\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job wrote, the batches that it took, and how it ended."""

    text: str
    end: Finished
    batches: int
    job: Job


@dataclass
class Desk:
    """Schedulers over one context, with and without the jump."""

    model: NativeModel
    context: NativeContext

    def write(
        self, grammar: str, *, jumps: bool, sampling: Sampling = GREEDY, most: int = 300
    ) -> Answer:
        """An answer from an empty cache."""
        self.context.clear()
        prompt = self.model.vocab.tokenize("Write the file, please.\n")
        return self.answer(prompt, grammar, self.scheduler(jumps=jumps), sampling, most)

    def answer(
        self,
        prompt: list[int],
        grammar: str,
        made: tuple[Scheduler, list[Update]],
        sampling: Sampling = GREEDY,
        most: int = 300,
    ) -> Answer:
        scheduler, updates = made
        updates.clear()
        constraint = held_to(grammar, self.model.vocab) if grammar else None
        job = Job(len(prompt), list(prompt), sampling, lambda update: None, constraint)
        scheduler.queue.submit(job)
        scheduler.start(job, most)
        batches = 0
        while not scheduler.queue.idle:
            scheduler.step()
            batches += 1
        assert not [u for u in updates if isinstance(u, Failed)]
        (end,) = [u for u in updates if isinstance(u, Finished)]
        return Answer("".join(u.text for u in updates if isinstance(u, Text)), end, batches, job)

    def scheduler(self, *, jumps: bool) -> tuple[Scheduler, list[Update]]:
        pool = SequencePool(self.context, self.model.window, self.model.vocab.controls)
        updates: list[Update] = []
        scheduler = Scheduler(
            self.context,
            pool,
            lambda _, update: updates.append(update),
            jumps_ahead=jumps,
        )
        return scheduler, updates


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    model = NativeModel(PUP, model_params(EXACT, {}))
    context = NativeContext(model, context_params(EXACT, 2, model.traits))
    yield Desk(model, context)
    context.close()
    model.close()


def quoted(text: str) -> str:
    """A grammar that allows exactly this text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'root ::= "{escaped}"'


def test_a_call_takes_fewer_batches_and_is_the_same(desk: Desk) -> None:
    sampled, forced = desk.write(CALL, jumps=False), desk.write(CALL, jumps=True)
    assert forced.text == sampled.text
    assert forced.end.reason is sampled.end.reason is FinishReason.STOP
    assert forced.batches <= sampled.batches / 3


def test_an_answer_without_any_choice_takes_no_batch_but_the_prompts(desk: Desk) -> None:
    whole = desk.write(quoted(LITERAL), jumps=True)
    assert whole.text == LITERAL
    assert whole.batches == 1
    assert whole.end.reason is FinishReason.STOP
    assert whole.end.stats.completion_tokens == len(whole.end.tokens)


def test_limits_and_stop_strings_hold_inside_of_forced_text(desk: Desk) -> None:
    short = desk.write(quoted(LITERAL), jumps=True, most=5)
    assert len(short.end.tokens) == 5
    assert short.end.reason is FinishReason.LENGTH
    assert LITERAL.startswith(short.text)
    stopping = Sampling(temperature=0.0, stop=("42",))
    stopped = desk.write(quoted(LITERAL), jumps=True, sampling=stopping)
    assert stopped.text == LITERAL.partition("42")[0]
    assert stopped.end.stop_string == "42"


def test_each_token_keeps_its_log_probabilities(desk: Desk) -> None:
    asking = Sampling(temperature=0.0, logprobs=2)
    measured = desk.write(CALL, jumps=True, sampling=asking)
    assert measured.batches >= len(measured.end.tokens)


def test_penalties_count_forced_tokens(desk: Desk) -> None:
    """A digit that was forced becomes so unlikely, or so likely, that the choice follows."""
    grammar = 'root ::= "The number is 7777 or " ("7" | "4")'
    for penalty, choice in ((50.0, "4"), (-50.0, "7")):
        sampling = Sampling(temperature=0.0, penalty_present=penalty, penalty_last_n=64)
        assert desk.write(grammar, jumps=True, sampling=sampling).text.endswith(choice)


def test_a_later_turn_continues_warm_as_it_would_cold(desk: Desk) -> None:
    """What was not decoded at the end of an answer is decoded with the next prompt."""
    desk.context.clear()
    made = desk.scheduler(jumps=True)
    first = desk.answer(desk.model.vocab.tokenize("Write it.\n"), CALL, made)
    following = [*first.job.tokens, *desk.model.vocab.tokenize("\nNow tell me more.\n")]
    warm = desk.answer(following, "", made, most=20)
    desk.context.clear()
    cold = desk.answer(following, "", desk.scheduler(jumps=True), most=20)
    assert warm.job.cached_tokens > len(first.job.tokens) / 2
    assert warm.end.tokens == cold.end.tokens


def test_control_tokens_are_never_forced(desk: Desk) -> None:
    vocab = desk.model.vocab
    for control in sorted(vocab.controls):
        text = b"abc" + vocab.piece(control) + b"def"
        tokens = forced_tokens(vocab, [], text)
        assert not vocab.controls.intersection(tokens)
    assert desk.write(quoted("say <|im_end|> now"), jumps=True).text in ("say <|im_end|> now", "")


@pytest.fixture(scope="module", params=[*VOCABULARIES, "pup"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NativeModel]:
    path: Path = PUP
    if request.param != "pup":
        path = tmp_path_factory.mktemp("vocabulary") / "model.gguf"
        write_llama(path, vocabulary=VOCABULARIES[request.param])
    model = NativeModel(path, model_params(EXACT, {}))
    yield model
    model.close()


@hypothesis_settings(max_examples=examples(40, 10), deadline=None)
@given(before=TEXTS, forced=TEXTS, cut=st.integers(0, 3))
def test_forced_tokens_are_the_text_and_those_of_free_writing(
    model: NativeModel, before: str, forced: str, cut: int
) -> None:
    vocab = model.vocab
    written = vocab.tokenize(before)
    data = forced.encode() + "é".encode()[:1] * (cut == 1)
    tokens = forced_tokens(vocab, written, data)
    text = b"".join(map(vocab.piece, tokens))
    assert text in (b"", forced.encode()) or vocab.controls.intersection(
        vocab.tokenize(forced, parse_special=True)
    )
    whole = vocab.tokenize(before + forced, parse_special=True)
    is_same = b"".join(map(vocab.piece, whole)) == (before + forced).encode()
    if is_same and 0 < len(written) <= MAX_TAIL and whole[: len(written)] == written:
        assert tokens == whole[len(written) :][: len(tokens)]
    kept = without_extensible(vocab, tokens)
    assert kept == tokens[: len(kept)]


def test_a_token_that_may_become_longer_is_left_to_the_model(model: NativeModel) -> None:
    vocab = model.vocab
    longer = next(
        t for t in range(vocab.size) if vocab.piece(t) in (b"hello", b" the", b"the", b"he")
    )
    piece = vocab.piece(longer)
    start = vocab.tokenize("x" + piece[:-1].decode())
    assert without_extensible(vocab, start) != start
