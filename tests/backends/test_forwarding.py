"""A wrapper passes on all that a backend has."""

from collections.abc import Callable, Sequence

from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.forwarding import ForwardingBackend
from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.backends.upstream_state import UpstreamState
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.api.support import Events

COMPOSED = {"prefill_choices", "generate_from_session"}
"""What `Backend` makes of other members, so that a wrapper which changes those changes it too."""


class Marked(ScriptedBackend):
    """Has a value of its own for each member that has a default."""

    closed = False

    @property
    def alive(self) -> bool:
        return False

    @property
    def selector(self) -> str:
        return "a/b"

    @property
    def upstreams(self) -> Sequence[UpstreamState]:
        return [UpstreamState("http://a")]

    @property
    def waiting_requests(self) -> int:
        return 3

    @property
    def count_error(self) -> float | None:
        return 0.25

    async def reachable(self) -> bool:
        return True

    def when_moved(self, listener: Callable[[], None]) -> Callable[[], None]:
        return listener

    def take_warning(self) -> str:
        return "careful"

    async def aclose(self) -> None:
        self.closed = True


def test_no_member_is_forgotten() -> None:
    members = {name for name in vars(Backend) if not name.startswith("_")}
    assert members - COMPOSED == {n for n in vars(ForwardingBackend) if not n.startswith("_")}


async def test_everything_comes_from_the_wrapped_one() -> None:
    inner = Marked(parse_script("text: one\n---\ntext: two"))
    backend = ForwardingBackend(inner)
    info: ModelInfo = backend.info
    assert info == inner.info
    assert await backend.reachable()
    assert not backend.alive
    assert backend.selector == "a/b"
    assert backend.take_warning() == "careful"
    assert backend.waiting_requests == 3
    assert backend.upstreams == [UpstreamState("http://a")]
    assert backend.count_error == 0.25
    assert (backend.cache_tiers, backend.text_model) == ((), None)
    assert type(backend.embedder) is type(inner.embedder) is not type(None)
    assert backend.when_moved(print) is print
    session = Session(messages=[Message.user("hello")])
    assert await backend.count_session_tokens(session) == await inner.count_session_tokens(session)
    answer = await backend.generate_from_session(session, Events())
    assert answer.message.content == "one"
    first, second = await backend.prefill_choices(session, Events(), 2)
    async with first, second:
        again = await backend.generate_from_prefilled(second, Events())
    assert again.message.content == "two"
    await backend.aclose()
    assert not inner.closed
