"""Between few texts the model chooses by how likely it finds each as a whole."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.inprocess.answer import Failed, Finished, Update
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.batch import Span
from shepherd.backends.llamacpp.native.context import NO_ROOM, Interrupt, NativeContext
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.sampling.candidates import log_total, logits_row
from shepherd.backends.llamacpp.sampling.choice import Choice, distinct_tokens, find_options
from shepherd.backends.llamacpp.sampling.guard import GrammarGuard
from shepherd.backends.llamacpp.sampling.sampler import SamplerChain
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import GREEDY, PUP, held_to, settings
from tests.backends.llamacpp.test_fragments import VOCABULARIES
from tests.backends.llamacpp.tiny import write_llama
from tests.examples import examples, few, some

EXACT = settings(flash_attention="off", cache_type_k="f32", cache_type_v="f32", context_size=512)
SEQUENCES = 8

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.sampling.candidates import Row

Enums = Mapping[str, Sequence[str]]
Shares = Mapping[tuple[str, ...], float]

SCHEMAS: dict[str, Enums] = {
    "Should I add a line to the log file, or replace it? Answer in JSON.": {
        "action": ["append", "overwrite", "create"],
        "mode": ["text", "binary"],
        "where": ["start", "end", "middle"],
    },
    "Describe a sunny day at the sea as JSON.": {
        "mood": ["happy", "sad", "angry"],
        "size": ["small", "medium", "large"],
        "color": ["red", "green", "blue"],
    },
    "The server crashes when I log in. File an issue as JSON.": {
        "priority": ["low", "medium", "high"],
        "status": ["open", "closed", "in progress"],
        "kind": ["bug", "feature", "question"],
    },
}


def grammar(enums: Enums) -> str:
    """In GBNF, an object whose values are each one of a few."""
    fields = [
        f'"\\"{name}\\": \\"" ({" | ".join(map(json.dumps, values))}) "\\""'
        for name, values in enums.items()
    ]
    body = ' ", " '.join(fields)
    return f'root ::= "{{" {body} "}}"'


@dataclass
class Lab:
    """A model whose answers are sampled and scored."""

    model: NativeModel
    context: NativeContext

    def whole_answers(self, prompt: list[int], enums: Enums) -> Shares:
        """The share of each answer by the model's own probability of all of its text."""
        scores: dict[tuple[str, ...], float] = {}
        for values in itertools.product(*enums.values()):
            text = json.dumps(dict(zip(enums, values, strict=True)))
            scores[values] = self.score(prompt, self.model.vocab.tokenize(text))
        most = max(scores.values())
        total = sum(math.exp(score - most) for score in scores.values())
        return {values: math.exp(score - most) / total for values, score in scores.items()}

    def sampled(self, prompt: list[int], enums: Enums, count: int, *, jumps: bool) -> Shares:
        """The share of each answer among sampled ones."""
        plain = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        ended = self.answers(prompt, grammar(enums), count, plain, jumps=jumps)
        texts = (b"".join(map(self.model.vocab.piece, end.tokens)).strip() for end in ended)
        counts = Counter(tuple(json.loads(text).values()) for text in texts)
        return {values: number / count for values, number in counts.items()}

    def answers(
        self, prompt: list[int], text: str, count: int, sampling: Sampling, *, jumps: bool = True
    ) -> list[Finished]:
        """Sampled answers under a grammar, with seeds from 0 on."""
        self.context.clear()
        pool = SequencePool(self.context, self.model.window, self.model.vocab.controls)
        updates: list[Update] = []
        scheduler = Scheduler(
            self.context, pool, lambda _, update: updates.append(update), jumps_ahead=jumps
        )
        constraint = held_to(text, self.model.vocab)
        for seed in range(count):
            seeded = replace(sampling, seed=seed)
            job = Job(len(prompt), list(prompt), seeded, lambda update: None, constraint)
            scheduler.queue.submit(job)
            scheduler.start(job, 300)
            if len(scheduler.queue.jobs) == SEQUENCES or seed == count - 1:
                while not scheduler.queue.idle:
                    scheduler.step()
        assert not [update for update in updates if isinstance(update, Failed)]
        return [update for update in updates if isinstance(update, Finished)]

    def score(self, prompt: list[int], answer: list[int]) -> float:
        self.context.clear()
        tokens = [*prompt, *answer]
        outputs = len(answer) + 1
        self.context.decode([Span(0, 0, tokens, wants_logits=True, outputs=outputs)])
        size = self.model.vocab.size
        score = 0.0
        for place, token in enumerate(answer, len(prompt) - 1):
            row = logits_row(self.context, place, size)
            score += float(row[token]) - log_total(row, np.empty_like(row))
        return score


@pytest.fixture(scope="module", params=["pup", "random"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path: Path = PUP
    if request.param == "random":
        path = tmp_path_factory.mktemp("choice") / "model.gguf"
        write_llama(path, vocabulary=VOCABULARIES["bpe qwen"])
    model = NativeModel(path, model_params(EXACT, {}))
    context = NativeContext(model, context_params(EXACT, SEQUENCES, model.traits))
    yield Lab(model, context)
    context.close()
    model.close()


def distance(one: Shares, other: Shares) -> float:
    """The total variation between two distributions."""
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2


@pytest.mark.long
@pytest.mark.parametrize("question", some([*SCHEMAS], "choice", 1))
def test_answers_are_nearer_to_the_models_own_with_the_jump(lab: Lab, question: str) -> None:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    prompt = lab.model.vocab.tokenize(text, parse_special=True)
    enums = SCHEMAS[question]
    own = lab.whole_answers(prompt, enums)
    count = few(400, 24)
    jumped = distance(own, lab.sampled(prompt, enums, count, jumps=True))
    masked = distance(own, lab.sampled(prompt, enums, count, jumps=False))
    assert jumped < 0.8 * masked


def test_without_chance_the_likeliest_text_is_written(lab: Lab) -> None:
    vocab = lab.model.vocab
    prompt = vocab.tokenize("Is the sky blue?\n")
    values = ["yes", "no", "perhaps", "never"]
    (end,) = lab.answers(prompt, grammar({"answer": values}), 1, GREEDY)
    written = b"".join(map(vocab.piece, end.tokens))
    pieces = itertools.accumulate(map(vocab.piece, end.tokens))
    start = list(end.tokens[: 1 + next(i for i, text in enumerate(pieces) if b":" in text)])
    scores = {v: lab.score(prompt, [*start, *vocab.tokenize(f' "{v}"}}')]) for v in values}
    assert json.loads(written) == {"answer": max(values, key=scores.__getitem__)}


def test_without_room_for_the_texts_the_next_token_is_sampled(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is full for a moment, whenever several rows are wanted."""
    decode = lab.context.decode

    def refuse(spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        if len(spans) == 1 and spans[0].outputs > 1:
            return NO_ROOM
        return decode(spans, interrupt)

    monkeypatch.setattr(lab.context, "decode", refuse)
    question = next(iter(SCHEMAS))
    prompt = lab.model.vocab.tokenize(question)
    enums = SCHEMAS[question]
    shares = lab.sampled(prompt, enums, 4, jumps=True)
    assert all(value in enums[name] for v in shares for name, value in zip(enums, v, strict=True))


def test_a_banned_text_is_not_chosen(lab: Lab) -> None:
    """A ban of the token that tells a text from the others bans it; of all, tokens are sampled."""
    vocab = lab.model.vocab
    guard = GrammarGuard(held_to(grammar({"is": ["yes", "no"]}), vocab).matcher, vocab)
    start = vocab.tokenize('{"is":')
    for token in start:
        guard.accept(token)
    options = find_options(vocab, guard, start, may_end=True)
    firsts = distinct_tokens(options)
    texts = [b"".join(map(vocab.piece, option)) for option in options]
    assert [text.strip(b'" ')[:2] for text in texts] in ([b"ye", b"no"], [b"no", b"ye"])
    for banned in ([firsts[0]], [firsts[1]], firsts):
        bias = Sampling(temperature=0.0, logit_bias=tuple((token, -100.0) for token in banned))
        (end,) = lab.answers(vocab.tokenize("Is it?"), grammar({"is": ["yes", "no"]}), 1, bias)
        if len(banned) < len(options):  # else the answer may end without one of them
            written = json.loads(b"".join(map(vocab.piece, end.tokens)))["is"]
            assert written in texts[1 - firsts.index(banned[0])].decode()


@pytest.mark.parametrize(
    "free", ['[a-z]{4} "x"', "[0-9]+", '("a" | "an") " end"', '"only" " one" " text"']
)
def test_other_text_is_chosen_token_by_token(lab: Lab, free: str) -> None:
    """Where many texts may follow, one, or where it is not certain which tokens tell them apart."""
    vocab = lab.model.vocab
    guard = GrammarGuard(held_to(f'root ::= "x = " {free}', vocab).matcher, vocab)
    assert guard.follow("x = ")
    options = find_options(vocab, guard, vocab.tokenize("x = "), may_end=True)
    assert len(options) != 1
    assert all(guard.allowed_part(option) == option for option in options)


def test_the_digits_of_a_number_are_sampled_where_it_goes_on(lab: Lab) -> None:
    """A number below 1,000 has few texts after two digits; each would be a batch."""
    vocab = lab.model.vocab
    guard = GrammarGuard(held_to('root ::= "x = " [0-9]{1,3} ";"', vocab).matcher, vocab)
    assert guard.follow("x = 12")
    assert find_options(vocab, guard, vocab.tokenize("x = 12"), may_end=True) == []


def test_texts_that_end_differently_are_read_once() -> None:
    choice = Choice([[7, 8, 1], [7, 8, 2], [7, 8, 3], [9, 4]], temperature=1.0)
    row = np.zeros(10, np.float32)
    choice.begin(row)
    read: list[int] = []
    while (number := choice.next()) is not None:
        read.append(number)
        choice.note(number, [row] * (len(choice.options[number]) - 1))
    assert len(read) == 2
    assert choice.weights(10)[1] == [1, 2, 3, 9]


def test_no_draft_is_decoded_where_a_choice_begins(lab: Lab) -> None:
    """It would be dropped, as the texts of the choice come behind the last token."""
    tokens = lab.model.vocab.tokenize("the same words, the same words, the same words, the same")
    job = Job(len(tokens), tokens, GREEDY, lambda update: None)
    job.sampler = SamplerChain(GREEDY, lab.model.vocab, 512, None)
    speculator = Speculator(lab.context, always=True)
    assert speculator.choose_drafts([job], 20)
    job.sampler.choice = Choice([[1], [2]], temperature=1.0)
    assert not speculator.choose_drafts([job], 20)
    job.sampler.close()


SCORES = st.lists(st.lists(st.floats(-20, 20), min_size=1, max_size=4), min_size=2, max_size=8)


@hypothesis_settings(max_examples=examples(200))
@given(rows=SCORES, temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]))
def test_only_what_is_too_unlikely_is_not_weighed(
    rows: list[list[float]], temperature: float
) -> None:
    """Each option begins with a token of its own; the rows have the logits of its tokens."""
    size = 40
    options = [[number, *range(20, 19 + len(row))] for number, row in enumerate(rows)]
    first = np.zeros(size, np.float32)
    first[: len(rows)] = [row[0] for row in rows]
    choice = Choice(options, temperature)
    assert not choice.begun
    choice.begin(first)

    def behind(number: int) -> list["Row"]:
        result: list[Row] = []
        for token, logit in zip(options[number][1:], rows[number][1:], strict=True):
            row = np.zeros(size, np.float32)
            row[token] = logit
            result.append(row)
        return result

    def exact(number: int) -> float:
        rows = [first, *behind(number)]
        return sum(
            float(row[token]) - log_total(row, np.empty_like(row))
            for token, row in zip(options[number], rows, strict=True)
        )

    while (number := choice.next()) is not None:
        choice.note(number, behind(number))
    weights, tokens = choice.weights(size)
    assert all(weights[token] == pytest.approx(exact(token), abs=1e-3) for token in tokens)
    scores = np.array([exact(number) for number in range(len(options))]) / max(temperature, 0.01)
    shares = np.exp(scores - scores.max())
    assert sum(shares[tokens]) >= 0.98 * sum(shares)
    assert [choice.option_with(token) for token in tokens] == [options[t] for t in tokens]
