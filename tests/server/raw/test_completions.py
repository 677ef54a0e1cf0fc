"""`POST /v1/completions` with OpenAI's client."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Completion

from tests.server.engine import Engine, engine
from tests.server.harness import RunningServer, Scripted, scripted
from tests.server.held import HeldBackend

PROMPT = "The first word is"


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2, flash="off") as running:
        yield running


@pytest.fixture(scope="module")
def script() -> Iterator[Scripted]:
    with scripted('chunk: 2\ntext: "one two three"') as running:
        yield running


def given(options: dict[str, Any]) -> dict[str, Any]:
    """A request for as many tokens as its limit says."""
    return {
        "model": "m",
        "prompt": PROMPT,
        "max_tokens": 6,
        "extra_body": {"ignore_eos": True},
    } | options


def complete(server: RunningServer[Any], **options: Any) -> Completion:
    with server.client() as client:
        completions: Any = client.completions
        answer: Completion = completions.create(**given(options))
        return answer


def stream(server: RunningServer[Any], **options: Any) -> list[Completion]:
    with server.client() as client:
        completions: Any = client.completions
        return list(completions.create(**given(options), stream=True))


def texts(chunks: list[Completion]) -> dict[int, str]:
    told: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            told[choice.index] = told.get(choice.index, "") + choice.text
    return told


def test_an_answer_and_its_stream_are_the_same(server: Engine) -> None:
    whole = complete(server)
    chunks = stream(server, stream_options={"include_usage": True})
    (choice,) = whole.choices
    assert (whole.object, whole.model, choice.finish_reason) == ("text_completion", "m", "length")
    assert texts(chunks) == {0: choice.text}
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert {chunk.system_fingerprint for chunk in chunks} == {whole.system_fingerprint}


def test_tokens_give_the_answer_of_their_text(server: Engine) -> None:
    model = server.backend.text_model
    tokens = server.do(model.tokenize([PROMPT], begins=True))
    expected = complete(server).choices[0].text
    assert complete(server, prompt=tokens).choices[0].text == expected
    both = complete(server, prompt=[tokens, tokens])
    assert [choice.text for choice in both.choices] == [expected] * 2
    mixed = complete(server, prompt=[PROMPT, "Other words"])
    assert mixed.choices[0].text == expected
    assert [choice.index for choice in mixed.choices] == [0, 1]


def test_several_prompts_have_several_answers_each(server: Engine) -> None:
    prompts = [PROMPT, "Another", "A third"]
    options: dict[str, Any] = {"prompt": prompts, "n": 2, "seed": 3, "temperature": 1.0}
    whole = complete(server, **options)
    assert [choice.index for choice in whole.choices] == list(range(6))
    assert texts(stream(server, **options)) == {c.index: c.text for c in whole.choices}
    assert whole.usage is not None
    single = [complete(server, prompt=prompt).usage for prompt in prompts]
    assert whole.usage.prompt_tokens == sum(usage.prompt_tokens for usage in single if usage)
    assert whole.usage.completion_tokens == 36


def test_the_prompt_is_echoed(server: Engine) -> None:
    plain = complete(server).choices[0].text
    assert complete(server, echo=True).choices[0].text == PROMPT + plain
    assert texts(stream(server, echo=True)) == {0: PROMPT + plain}
    tokens = server.do(server.backend.text_model.tokenize([PROMPT]))
    assert complete(server, prompt=tokens, echo=True).choices[0].text == PROMPT + plain


def test_a_prompt_is_only_read_with_no_tokens(server: Engine) -> None:
    answer = complete(server, max_tokens=0, echo=True)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (PROMPT, "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0
    assert texts(stream(server, max_tokens=0)) == {0: ""}


def test_log_probabilities_have_their_old_form(server: Engine) -> None:
    choice = complete(server, logprobs=3).choices[0]
    told = choice.logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.top_logprobs is not None
    assert told.token_logprobs is not None
    assert "".join(told.tokens) == choice.text
    assert all(3 <= len(likeliest) <= 4 for likeliest in told.top_logprobs)
    assert all(value <= 0 for value in told.token_logprobs)
    assert told.text_offset == [
        len("".join(told.tokens[:index])) for index in range(len(told.tokens))
    ]
    chunks = stream(server, logprobs=3)
    parts = [c.choices[0].logprobs for c in chunks if c.choices and c.choices[0].logprobs]
    assert [token for part in parts for token in part.tokens or []] == told.tokens
    assert [at for part in parts for at in part.text_offset or []] == told.text_offset


def test_the_prompt_has_its_log_probabilities(server: Engine) -> None:
    prompt = "A prompt of some words, " * 30
    options: dict[str, Any] = {"prompt": prompt, "echo": True, "max_tokens": 4}
    told = complete(server, logprobs=2, **options).choices[0]
    assert told.logprobs is not None
    assert told.logprobs.tokens is not None
    assert told.logprobs.token_logprobs is not None
    assert told.logprobs.top_logprobs is not None
    assert "".join(told.logprobs.tokens) == told.text
    assert told.text.startswith(prompt)
    first: Any = told.logprobs.token_logprobs[0]
    assert first is None or first <= 0
    assert all(value <= 0 for value in told.logprobs.token_logprobs[1:])
    # an answer that is sent back as a prompt has the log probabilities that it was given
    again = complete(server, logprobs=2, **options | {"prompt": told.text}).choices[0].logprobs
    assert again is not None
    assert again.token_logprobs is not None
    count = len(told.logprobs.tokens)
    for index in range(1, count):
        if told.logprobs.tokens[:index] != (again.tokens or [])[:index]:
            break
        expected = told.logprobs.token_logprobs[index]
        assert again.token_logprobs[index] == pytest.approx(expected, abs=0.05)
    tokens = server.do(server.backend.text_model.tokenize([prompt]))
    by_number = complete(server, logprobs=0, **options | {"prompt": tokens, "max_tokens": 0})
    assert by_number.choices[0].logprobs is not None
    values = by_number.choices[0].logprobs.token_logprobs or []
    assert len(values) == len(tokens)
    assert values[1:] == pytest.approx(told.logprobs.token_logprobs[1 : len(tokens)], abs=0.05)
    chunks = stream(server, logprobs=2, **options)
    parts = [c.choices[0].logprobs for c in chunks if c.choices and c.choices[0].logprobs]
    assert [token for part in parts for token in part.tokens or []] == told.logprobs.tokens


def test_the_likeliest_of_several_is_kept(server: Engine) -> None:
    options: dict[str, Any] = {"seed": 1, "temperature": 3.0, "logprobs": 0}
    every = complete(server, n=4, **options)
    best = complete(server, n=1, best_of=4, **options)

    def mean(choice: Any) -> float:
        values: list[float] = choice.logprobs.token_logprobs
        return sum(values) / len(values)

    assert best.choices[0].text == max(every.choices, key=mean).text
    assert best.usage is not None
    assert best.usage.completion_tokens == 24


def test_formats_stops_and_biases_hold(server: Engine) -> None:
    grammar = complete(server, extra_body={"grammar": 'root ::= "yes"'}, max_tokens=9)
    assert (grammar.choices[0].text, grammar.choices[0].finish_reason) == ("yes", "stop")
    schema = complete(server, extra_body={"json_schema": {"const": 4}})
    assert schema.choices[0].text == "4"
    plain = complete(server).choices[0].text
    assert complete(server, stop=plain[2:4]).choices[0].text == plain[:2]
    first = complete(server, max_tokens=1, logprobs=0).choices[0]
    token = server.do(server.backend.text_model.tokenize([first.text]))[0]
    assert not complete(server, logit_bias={str(token): -100}).choices[0].text.startswith(plain[:4])


def test_the_second_request_reads_the_first_from_the_cache(server: Engine) -> None:
    prompt = "Some words that nobody sent before. " * 5
    first = complete(server, prompt=prompt)
    assert first.usage is not None
    second = complete(server, prompt=prompt + first.choices[0].text + " And more.")
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached >= first.usage.prompt_tokens - 2


def test_the_text_is_the_same_however_it_comes(script: Scripted) -> None:
    assert texts(stream(script)) == {0: "one two three"}
    assert complete(script, max_tokens=None).choices[0].finish_reason == "stop"


WRONG: list[tuple[dict[str, Any], str, str | None]] = [
    ({"prompt": []}, "prompt", "invalid_value"),
    ({"prompt": [[]]}, "prompt.0", "invalid_value"),
    ({"prompt": 7}, "prompt", "invalid_value"),
    ({"prompt": [True]}, "prompt.0", "invalid_value"),
    ({"prompt": [[1, [2]]]}, "prompt.0", "invalid_value"),
    ({"prompt": ["a"] * 129}, "prompt", "invalid_value"),
    ({"prompt": [10**9]}, "prompt", "invalid_value"),
    ({"n": 99}, "n", "invalid_value"),
    ({"best_of": 99}, "best_of", "invalid_value"),
    ({"n": 2, "best_of": 1}, "best_of", "invalid_value"),
    ({"best_of": 2, "stream": True}, "best_of", "invalid_value"),
    ({"logprobs": 99}, "logprobs", "invalid_value"),
    ({"echo": True, "logprobs": 1, "suffix": "b"}, "logprobs", "unsupported_parameter"),
    ({"suffix": "b"}, "suffix", "invalid_value"),
    ({"suffix": "b", "prompt": [1, 2]}, "suffix", "invalid_value"),
    ({"extra_body": {"response_format": {"type": "json_object"}}}, "response_format", None),
    ({"extra_body": {"prompt_logprobs": 2}}, "prompt_logprobs", "unsupported_parameter"),
    ({"prompt": "word " * 9000}, "messages", "context_length_exceeded"),
]


@pytest.mark.parametrize(("options", "param", "code"), WRONG)
def test_what_cannot_be_served_is_refused_by_name(
    server: Engine, options: Any, param: str, code: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(server, **options)
    assert caught.value.param == param
    assert caught.value.code == code or code is None


def test_a_provider_takes_messages_only() -> None:
    with RunningServer(HeldBackend()) as held, pytest.raises(openai.BadRequestError) as caught:
        complete(held)
    assert (caught.value.param, caught.value.code) == ("prompt", "unsupported_parameter")
