"""A script that is played, up to a stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.base import Generation
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import Event, FinishReason
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.flat_events import TEXT_KINDS, flat


async def played(script: str, *stop: str, max_tokens: int = 0) -> tuple[Generation, str]:
    """The generation, and the text of its events."""
    backend, pieces = ScriptedBackend(parse_script(script)), list[str]()

    def listen(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        pieces.extend([content] if kind in TEXT_KINDS else [])
        return True

    session = Session(messages=[Message.user("hi")], sampling=Sampling(stop=stop))
    generation = await backend.generate_from_session(session, listen, max_tokens)
    return generation, "".join(pieces)


@given(chunk=st.integers(1, 12))
async def test_a_stop_string_ends_the_answer_however_it_is_cut(chunk: int) -> None:
    script = f"chunk: {chunk}\nthink: END\ntext: one two END three\ncall: get_time"
    generation, text = await played(script, "never", "END")
    assert text == "ENDone two "
    assert generation.message == Message.assistant("one two ", "END")
    assert (generation.finish_reason, generation.stop_string) == (FinishReason.STOP, "END")


@pytest.mark.parametrize("stop", [(), ("END",), ("three!",)])
async def test_without_its_stop_string_an_answer_is_whole(stop: tuple[str, ...]) -> None:
    generation, text = await played("text: one two\ntext: three", *stop)
    assert text == generation.message.content == "one twothree"
    assert generation.stop_string == ""


@given(chunk=st.integers(1, 12), limit=st.integers(1, 9))
async def test_a_limit_ends_the_answer_however_it_is_cut(chunk: int, limit: int) -> None:
    script = f"chunk: {chunk}\nthink: a, b\ntext: one two-three\ncall: get_time"
    whole, _ = await played(script)
    generation, text = await played(script, max_tokens=limit)
    ends = ["a", "a,", "a, b", "a, bone", "a, bone two", "a, bone two-"]
    assert text.rstrip() == (*ends, *["a, bone two-three"] * 3)[limit - 1]
    assert generation.stats.completion_tokens == min(limit, whole.stats.completion_tokens)
    assert (generation.finish_reason is FinishReason.LENGTH) == (limit < 7)
    assert bool(generation.message.tool_calls) == (limit >= 7)
