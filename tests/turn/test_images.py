"""Images in a turn: they go with the prompt, and a refusal of them leaves no trace."""

import pytest

from shepherd.backends.base import Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import ImageError, InvalidRequestError
from shepherd.events import CallbackEvent, EventCallback
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.pictures import picture
from tests.turn.test_run_turn import Recorder, Tools

PHOTO = picture()
IMAGE_PROMPT = Message.user("What is this?", (PHOTO,))


class RefusingBackend(ScriptedBackend):
    """A provider that refuses what it is asked, after `answers` generations."""

    def __init__(self, script: str, answers: int = 0) -> None:
        super().__init__(parse_script(script))
        self.answers = answers

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.answers -= 1
        if self.answers < 0:
            raise InvalidRequestError("the image is broken")
        return await super().prefill_session(session, callback)


async def test_images_go_with_the_prompt_and_stay() -> None:
    session, recorder = Session(), Recorder()
    backend = ScriptedBackend(parse_script("text: A cat."))
    await run_turn(session, IMAGE_PROMPT, backend, Tools(), recorder)
    assert session.messages == [IMAGE_PROMPT, Message.assistant("A cat.")]
    assert recorder.of(CallbackEvent.USER_PROMPT) == ["[image photo.png, 3×2]\nWhat is this?"]


async def test_a_prompt_whose_images_are_refused_leaves_no_trace() -> None:
    before = [Message.user("hi"), Message.assistant("Hello.")]
    blind = ScriptedBackend(parse_script("vision: no\ntext: Yes."))
    for backend in (blind, RefusingBackend("text: Never.")):
        session, recorder = Session(messages=list(before)), Recorder()
        with pytest.raises(InvalidRequestError):
            await run_turn(session, IMAGE_PROMPT, backend, Tools(), recorder)
        assert session.messages == before
        assert len(recorder.of(CallbackEvent.ERROR)) == 1


async def test_a_model_that_can_not_see_goes_on_with_what_others_saw() -> None:
    session = Session(messages=[IMAGE_PROMPT, Message.assistant("A cat.")])
    blind = ScriptedBackend(parse_script("vision: no\ntext: Yes."))
    await run_turn(session, "Really?", blind, Tools(), Recorder())
    assert session.messages[-1] == Message.assistant("Yes.")
    with pytest.raises(ImageError, match="can't see"):
        await run_turn(session, IMAGE_PROMPT, blind, Tools(), Recorder())
    assert session.messages[-1] == Message.assistant("Yes.")


async def test_what_was_answered_already_stays_when_a_later_round_is_refused() -> None:
    session = Session()
    backend = RefusingBackend("call: look {}", answers=1)
    with pytest.raises(InvalidRequestError):
        await run_turn(session, IMAGE_PROMPT, backend, Tools(), Recorder())
    assert session.messages[0] == IMAGE_PROMPT
    (call,) = session.messages[1].tool_calls
    assert session.messages[2].tool_call_id == call.id
