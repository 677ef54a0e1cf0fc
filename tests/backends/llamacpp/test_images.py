"""Models that run here read text: images are refused when they come, and text after that."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.errors import ImageError
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.support import Recorder, loaded
from tests.pictures import picture

SHOWN = Message.user("What is this?", (picture(),))


async def test_an_image_is_refused_and_one_of_the_past_is_text(llama: Path) -> None:
    async with loaded(llama) as backend:
        assert backend.info.vision is False
        with pytest.raises(ImageError, match=r"can't see images.*provider add"):
            await backend.prefill_session(Session(messages=[SHOWN]), Recorder())
        session = Session(messages=[SHOWN, Message.assistant("A cat."), Message.user("Sure?")])
        told = [message.without_images() for message in session.messages]
        async with await backend.prefill_session(session, Recorder()) as seen:
            tokens = seen.prompt_tokens
        plain = replace(session, messages=told)
        assert tokens == await backend.count_session_tokens(plain)
        assert tokens == await backend.count_session_tokens(session)
        assert await backend.count_message_tokens(session, SHOWN) == (
            await backend.count_message_tokens(session, SHOWN.without_images())
        )
