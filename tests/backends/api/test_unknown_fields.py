"""A server near us that takes nothing beyond OpenAI's API, over real HTTP."""

import pytest

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.openai.dialects import EXTENDED, OPENAI, PLAIN, TENSORRT
from shepherd.backends.connect import adapter_for
from shepherd.errors import InvalidRequestError
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session
from tests.backends.api.openai.official import said as delta
from tests.backends.api.openai.official import valid_chat
from tests.backends.api.support import LIST, Events, asking, options
from tests.backends.api.upstream import Reply, Upstream

ANSWER = Reply.sse([delta(content="Hm."), delta("stop")])
EXTRA = "Extra inputs are not permitted"


def refusal(text: str, status: int = 400) -> Reply:
    return Reply({"error": {"message": text, "type": "invalid_request_error"}}, status)


def detail(*way: str | int) -> Reply:
    """FastAPI's and Mistral's."""
    return Reply({"detail": [{"type": "extra_forbidden", "loc": [*way], "msg": EXTRA}]}, 422)


PYDANTIC = (
    "1 validation error for ChatCompletionRequest\nchat_template_kwargs\n"
    f"  {EXTRA} [type=extra_forbidden, input_value={{'enable_thinking': False}}]"
)
GROQ = (
    "'messages.1' : for 'role:assistant' the following must be satisfied"
    "[('messages.1' : property 'reasoning_content' is unsupported)]"
)
REFUSALS = [
    refusal("Unrecognized request argument supplied: chat_template_kwargs"),
    refusal("Unrecognized request arguments supplied: chat_template_kwargs, top_k"),
    refusal("Unknown parameter: 'top_k'."),
    refusal("Unsupported parameter: 'min_p' is not supported with this model."),
    refusal("litellm.UnsupportedParamsError: x does not support parameters: ['top_k'], model=y"),
    refusal(GROQ),
    refusal(PYDANTIC),
    detail("body", "chat_template_kwargs"),
    detail("body", "messages", 1, "assistant", "reasoning_content"),
    Reply({"object": "error", "message": {"detail": [{"loc": ["body", "min_p"], "msg": EXTRA}]}}),
]
REFUSALS[-1] = Reply(REFUSALS[-1].body, 400)
OTHERS = [
    refusal("top_k must be at least 1"),
    refusal("Unrecognized request argument supplied: banana"),
    refusal("Unsupported parameter: 'seed' is not supported with this model."),
    refusal("temperature must be at most 1"),
    refusal("Unknown parameter: 'top_k'.", 404),
    refusal("chat_template_kwargs: Input should be a valid dictionary"),
]


def backend_at(up: Upstream, dialect: str = "") -> ApiBackend:
    url = f"{up.url}/v1"
    adapter = adapter_for("openai", url, dialect)
    return ApiBackend(
        Endpoint(url, name="acme"), adapter, ModelTraits("m1", 4096), options=options()
    )


def asked_by_a_user() -> Session:
    """A session with everything in it that only an extended server knows."""
    session = asking(LIST)
    session.add(Message.assistant("Hm.", "I think."))
    session.add(Message.user("And?"))
    session.sampling = Sampling(temperature=0.5, top_k=3, min_p=0.1, seed=7)
    return session


@pytest.mark.parametrize("refused", REFUSALS, ids=range(len(REFUSALS)))
async def test_it_is_asked_again_for_what_it_knows_and_for_no_more_after_that(
    refused: Reply,
) -> None:
    session, events = asked_by_a_user(), Events()
    async with Upstream([refused, ANSWER, ANSWER]) as up:
        backend = backend_at(up)
        for _ in range(2):
            made = await backend.generate_from_session(session, events)
            assert (made.message.content, made.finish_reason) == ("Hm.", FinishReason.STOP)
        await backend.aclose()
    first, *others = [request.json for request in up.requests]
    assert {"chat_template_kwargs", "top_k", "min_p"} <= set(first)
    assert len(others) == 2
    for body in others:
        valid_chat(body)
        assert set(body) == {
            *("model", "messages", "stream", "stream_options", "tools", "temperature", "seed")
        }
        assert [*map(set, body["messages"])] == [{"role", "content"}] * 3
        assert [m["content"] for m in body["messages"]] == ["hi", "Hm.", "And?"]
    assert events.of(CallbackEvent.SYSTEM) == []


@pytest.mark.parametrize("refused", OTHERS, ids=range(len(OTHERS)))
async def test_other_errors_are_told_at_once(refused: Reply) -> None:
    async with Upstream([refused, ANSWER]) as up:
        backend = backend_at(up)
        with pytest.raises(InvalidRequestError):
            await backend.generate_from_session(asked_by_a_user(), Events())
        await backend.aclose()
    assert len(up.requests) == 1


FIXED = [
    "Unsupported parameter: 'temperature' is not supported with this model.",
    "'temperature' does not support 0.5 with this model. Only the default (1) is supported.",
    "`temperature` is deprecated for this model.",
]


@pytest.mark.parametrize("text", FIXED)
@pytest.mark.parametrize("type", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_a_parameter_that_can_not_be_chosen_is_left_out_from_then_on(
    text: str, type: str
) -> None:
    refused = refusal(text)
    async with Upstream([refused] + [refusal("wrong") for _ in range(2)]) as up:
        adapter = adapter_for(type, up.url, "strict")
        traits = ModelTraits("m1", 4096)
        backend = ApiBackend(Endpoint(up.url, name="acme"), adapter, traits, options=options())
        for _ in range(2):
            with pytest.raises(InvalidRequestError, match="wrong"):
                await backend.generate_from_session(chosen(), Events())
        await backend.aclose()
    sent = ['"temperature"' in request.body.decode() for request in up.requests]
    assert sent == [True, False, False]
    assert all('"top_p"' in r.body.decode() or '"topP"' in r.body.decode() for r in up.requests)


def chosen() -> Session:
    session = asking()
    session.sampling = Sampling(temperature=0.5, top_p=0.9)
    return session


async def test_of_two_parameters_that_exclude_each_other_one_stays() -> None:
    text = "`temperature` and `top_p` cannot both be specified for this model."
    async with Upstream([refusal(text), ANSWER]) as up:
        backend = backend_at(up)
        await backend.generate_from_session(chosen(), Events())
        await backend.aclose()
    assert up.requests[1].json["temperature"] == 0.5
    assert "top_p" not in up.requests[1].json


LIMITS = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    "max_completion_tokens": "Unrecognized request argument supplied: max_completion_tokens",
}


@pytest.mark.parametrize("name", LIMITS)
async def test_the_output_limit_goes_under_its_other_name_from_then_on(name: str) -> None:
    [other] = set(LIMITS) - {name}
    async with Upstream([refusal(LIMITS[name]), ANSWER, ANSWER]) as up:
        backend = ApiBackend(
            Endpoint(up.url, name="acme"),
            adapter_for("openai", up.url, "strict"),
            ModelTraits("m1", 4096, limit_parameter=name),
            options=options(),
        )
        for _ in range(2):
            await backend.generate_from_session(asking(), Events(), 77)
        await backend.aclose()
    sent = [request.json.get(name, 0) for request in up.requests]
    assert sent == [77, 0, 0]
    assert [request.json.get(other, 0) for request in up.requests] == [0, 77, 77]


@pytest.mark.parametrize("insane", [False, True])
async def test_an_output_limit_that_is_refused_under_both_names_is_the_error(
    insane: bool,  # noqa: FBT001 - a case
) -> None:
    texts = [*LIMITS.values()] if not insane else [LIMITS["max_tokens"]] * 2
    async with Upstream(lambda _: refusal(texts[min(1, len(up.requests) - 1)])) as up:
        backend = backend_at(up, "strict")
        with pytest.raises(InvalidRequestError, match="max_"):
            await backend.generate_from_session(asking(), Events(), 77)
        await backend.aclose()
    assert len(up.requests) == 2


async def test_a_second_refusal_is_the_error() -> None:
    async with Upstream([REFUSALS[0]] * 3) as up:
        backend = backend_at(up)
        for number in (2, 3):
            with pytest.raises(InvalidRequestError, match="chat_template_kwargs"):
                await backend.generate_from_session(asking(), Events())
            assert len(up.requests) == number
        await backend.aclose()


@pytest.mark.parametrize(
    ("sampling", "wanted", "name"),
    [
        (Sampling(ignore_eos=True), None, "ignore_eos"),
        (Sampling(logit_bias=(("a", 1.0),)), None, "logit_bias"),
        (Sampling(), OutputFormat(grammar="root ::= [a]"), "grammar"),
    ],
)
async def test_what_would_change_the_answer_is_not_left_out(
    sampling: Sampling, wanted: OutputFormat | None, name: str
) -> None:
    """As with a server that is known to be strict from the beginning."""
    session = asking()
    session.sampling, session.output_format = sampling, wanted
    async with Upstream([REFUSALS[0]]) as up:
        backend = backend_at(up)
        for _ in range(2):
            with pytest.raises(InvalidRequestError) as caught:
                await backend.generate_from_session(session, Events())
            assert caught.value.param == name
        await backend.aclose()
    assert len(up.requests) == 1


async def test_requests_that_were_ready_before_learn_it_too() -> None:
    replies = [REFUSALS[0], ANSWER, REFUSALS[0], ANSWER]
    async with Upstream(replies) as up:
        backend = backend_at(up)
        ready = [await backend.prefill_session(asking(), Events()) for _ in range(2)]
        for handle in ready:
            assert (await backend.generate_from_prefilled(handle, Events())).message.content
        await backend.aclose()
    sent = ["chat_template_kwargs" in request.json for request in up.requests]
    assert sent == [True, False] * 2


async def test_tools_and_fields_are_refused_one_after_the_other() -> None:
    text = "m1 does not support tools"
    async with Upstream([REFUSALS[0], refusal(text), ANSWER, ANSWER]) as up:
        backend = backend_at(up)
        for _ in range(2):
            assert (await backend.generate_from_session(asking(LIST), Events())).message.content
        await backend.aclose()
    seen = [{"chat_template_kwargs", "tools"} & set(request.json) for request in up.requests]
    assert seen == [{"chat_template_kwargs", "tools"}, {"tools"}, set(), set()]


def test_who_is_sent_extras() -> None:
    assert {"chat_template_kwargs", "top_k", "reasoning_content"} <= EXTENDED.extras
    assert {"top_k", "min_p"} <= TENSORRT.extras
    assert PLAIN.extras == OPENAI.extras == frozenset()
    own = {"temperature", "logit_bias", "logprobs", "stop", "seed", "tools", "messages"}
    assert not own & (EXTENDED.extras | TENSORRT.extras)
    assert EXTENDED.plain.extras == frozenset()
