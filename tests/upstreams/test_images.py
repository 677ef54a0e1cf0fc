"""What a real server without a projector says of images, and that we understand it."""

import pytest
from msgspec.structs import replace

from shepherd.backends.api.backend import ApiBackend
from shepherd.errors import ImageError
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.api.support import Events
from tests.pictures import picture
from tests.upstreams.asking import provider
from tests.upstreams.llama_servers import KEY, LlamaServers

SHOWN = Message.user("What is this?", (picture("photo.png", 32, 32),))


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic"])
async def test_a_server_that_can_not_see_says_so(kind: str, llama: LlamaServers) -> None:
    """Where it is asked before; where it is not, by what it answers to the first image."""
    told = await provider(kind, llama.keyed, KEY)
    await told.aclose()
    assert told.info.vision is False
    unaware = ApiBackend(told.endpoint, told.adapter, replace(told.traits, vision=None))
    try:
        with pytest.raises(ImageError, match="can't see images"):
            await unaware.generate_from_session(Session(messages=[SHOWN]), Events(), 16)
        assert unaware.info.vision is False
        later = Session(messages=[SHOWN, Message.assistant("A cat."), Message.user("Sure?")])
        answer = await unaware.generate_from_session(later, Events(), 16)
        assert answer.stats.completion_tokens > 0
    finally:
        await unaware.aclose()
