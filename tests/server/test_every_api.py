"""What holds for every API: the same answer whole and streamed, the same refusals and limits."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import BackendError, BusyError, InvalidRequestError
from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.pictures import picture
from tests.server.apis import CALLING, CONVERSATIONS, WIRES, Json, Read, Request, Wire
from tests.server.engine import Engine, engine
from tests.server.harness import RunningServer, Scripted, scripted
from tests.server.held import HeldBackend, RaisingBackend

TEXT = "Hello ä **you**,\u2028 [1, 2]\n```py\nx = 1\n```\nbye"
ANSWER = r"""
think: Let me see.
text: "Hello ä **you**,\u2028 [1, 2]\n```py\nx = 1\n```\nbye"
call: get_time {"zone": "ä"}
call: get_time
"""
CALLS: list[tuple[str, Json]] = [("get_time", {"zone": "ä"}), ("get_time", {})]


def each(wires: dict[str, Wire]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wire", wires.values(), ids=wires.keys())


by_wire = each(WIRES)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted(ANSWER) as running:
        yield running


@pytest.fixture(scope="module")
def small() -> Iterator[Scripted]:
    settings = ServerSettings(port=0, max_body_bytes=4096)
    with scripted("context: 100\ntext: fine", settings) as running:
        yield running


@pytest.fixture(scope="module")
def model() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


@pytest.fixture(scope="module")
def raising() -> Iterator[RunningServer[RaisingBackend]]:
    with RunningServer(RaisingBackend(BackendError("never"))) as running:
        yield running


def play(server: Scripted, script: str) -> None:
    """Let the model play this script from now on."""
    server.backend.script = parse_script(script)


def failed(wire: Wire, response: httpx.Response, status: int) -> str:
    """The message of an error of this status, in the shape of the API."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    return wire.error(response.json())


@by_wire
@given(chunk=st.integers(1, 30), think=st.booleans())
def test_a_stream_says_the_same_however_it_is_cut(
    server: Scripted, wire: Wire, *, chunk: int, think: bool
) -> None:
    answer = ANSWER.replace("think:", "#") if wire.raw else ANSWER  # raw prompts ask for no turn
    server.backend.script = parse_script(f"chunk: {chunk}\n{answer}")
    request = Request(think=think, tools=True)
    reasons = think and not wire.raw
    calls = CALLS if wire in CALLING.values() else []
    whole = wire.ask(server, request, stream=False)
    expected = Read(TEXT, "Let me see." if reasons else "", calls, "calls" if calls else "stop")
    assert whole == wire.ask(server, request, stream=True) == expected


@each(CALLING)
@both_ways
def test_calls_alone_need_no_text(server: Scripted, wire: Wire, *, stream: bool) -> None:
    play(server, "call: get_time")
    read = wire.ask(server, Request(tools=True), stream=stream)
    assert read == Read("", "", [("get_time", {})], "calls")


@by_wire
@both_ways
def test_the_end_is_told(server: Scripted, wire: Wire, *, stream: bool) -> None:
    script = "chunk: 3\ntext: one two END three"
    play(server, script)
    stopped = wire.ask(server, Request(stop=["never", "END"]), stream=stream)
    cut = wire.ask(server, Request(limit=2), stream=stream)
    whole = wire.ask(server, Request(stop=["never"]), stream=stream)
    assert stopped == Read("one two ", end="stop")
    assert cut.end == "length"
    assert "one two END three".startswith(cut.text)
    assert whole == Read("one two END three", end="stop")


@by_wire
@both_ways
def test_an_answer_may_be_empty(server: Scripted, wire: Wire, *, stream: bool) -> None:
    play(server, "finish: stop")
    assert wire.ask(server, stream=stream) == Read(end="stop")


@by_wire
@both_ways
def test_half_a_pair_from_a_model_is_answered(
    server: Scripted, wire: Wire, *, stream: bool
) -> None:
    script = r'text: "half \ud83d pair"' + "\n" + r'call: get_time {"zone": "\udc00"}'
    play(server, script)
    read = wire.ask(server, Request(tools=True), stream=stream)
    assert read.text == "half ? pair"
    assert read.calls == ([("get_time", {"zone": "?"})] if wire in CALLING.values() else [])


@by_wire
def test_a_failure_in_a_stream_is_its_last_event(server: Scripted, wire: Wire) -> None:
    play(server, "text: Hel\nerror: upstream is gone")
    response = wire.send(server, stream=True)
    assert response.status_code == 200
    assert '"Hel"' in response.text
    assert "upstream is gone" in wire.error(wire.events(response.text)[-1])
    server.until(lambda: server.backend.active == 0)


@by_wire
@both_ways
def test_a_failure_before_the_first_text_is_a_status(
    server: Scripted, wire: Wire, *, stream: bool
) -> None:
    play(server, "error: upstream is gone")
    response = wire.send(server, stream=stream)
    assert failed(wire, response, 500) == "upstream is gone"


@by_wire
@both_ways
def test_an_answer_that_broke_off_is_no_whole_one(
    server: Scripted, wire: Wire, *, stream: bool
) -> None:
    play(server, "text: Hel\nfinish: error")
    response = wire.send(server, stream=stream)
    if stream:
        assert wire.error(wire.events(response.text)[-1])
    else:
        failed(wire, response, 502)


@by_wire
@both_ways
def test_a_prompt_that_does_not_fit_is_a_400(small: Scripted, wire: Wire, *, stream: bool) -> None:
    response = wire.send(small, Request("word " * 120), stream=stream)
    message = failed(wire, response, 400)
    numbers = [int(number) for number in re.findall(r"\d+", message)]
    assert 100 in numbers
    assert max(numbers) in (120, 124)


@by_wire
@both_ways
def test_a_context_that_fills_up_late_is_a_400(
    server: Scripted, wire: Wire, *, stream: bool
) -> None:
    play(server, "delay: 0\nfull: 10")
    failed(wire, wire.send(server, stream=stream), 400)


@by_wire
@both_ways
def test_a_busy_backend_says_when_to_come_back(
    raising: RunningServer[RaisingBackend], wire: Wire, *, stream: bool
) -> None:
    raising.backend.error = BusyError("8 requests wait", retry_after=2.5)
    response = wire.send(raising, stream=stream)
    assert failed(wire, response, wire.busy_status) == "8 requests wait"
    assert response.headers["retry-after"] == "3"


@by_wire
def test_refusals_and_defects_of_the_backend(
    raising: RunningServer[RaisingBackend], wire: Wire
) -> None:
    raising.backend.error = InvalidRequestError("seed is odd")
    assert failed(wire, wire.send(raising), 400) == "seed is odd"
    raising.backend.error = BackendError("it broke")
    assert failed(wire, wire.send(raising), 500) == "it broke"
    raising.backend.error = ZeroDivisionError("secret")
    response = wire.send(raising)
    assert "secret" not in failed(wire, response, 500)
    assert "secret" not in response.text


@each(CONVERSATIONS)
@both_ways
def test_images_need_a_model_that_sees(server: Scripted, wire: Wire, *, stream: bool) -> None:
    request = Request(image=picture("", 64, 48))
    play(server, "vision: no\ntext: ok")
    response = wire.send(server, request, stream=stream)
    assert "images are not supported: script reads text only" in failed(wire, response, 400)
    play(server, "vision: yes\ntext: ok")
    assert wire.ask(server, request, stream=stream).text == "ok"


@by_wire
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 9])
def test_what_is_no_json_object_is_a_400(small: Scripted, wire: Wire, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    url = small.url + wire.path
    failed(wire, httpx.post(url, content=body, headers=headers, timeout=PATIENCE), 400)


@by_wire
def test_the_edge_answers_in_the_shape_of_the_api(
    small: Scripted, wire: Wire, tmp_path: Path
) -> None:
    url = small.url + wire.path
    large = {"Content-Type": "application/json"}
    page = {"Content-Type": "text/plain", "Origin": "http://localhost"}
    failed(wire, httpx.put(url, json={}, timeout=PATIENCE), 405)
    failed(wire, httpx.post(url, content=b"x" * 8000, headers=large, timeout=PATIENCE), 413)
    failed(wire, httpx.post(url, content=b"{}", headers=page, timeout=PATIENCE), 415)
    failed(wire, wire.send(small, Host="evil.example"), 403)
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop")
    with RunningServer(ScriptedBackend(parse_script("text: hi")), keys=keys) as closed:
        failed(wire, wire.send(closed), 401)
        failed(wire, wire.send(closed, Authorization="Bearer wrong"), 401)
        assert wire.send(closed, Authorization=f"Bearer {key}").status_code == 200


@each(CONVERSATIONS)
@both_ways
def test_hanging_up_stops_the_work(wire: Wire, *, stream: bool) -> None:
    backend = HeldBackend(hold_prefill=True)
    body = wire.body(Request()) | ({} if wire.stream_path else {"stream": stream})
    url = wire.stream_path if stream and wire.stream_path else wire.path
    with RunningServer(backend) as server:
        seconds = 0.1
        while not backend.begun:  # until the server came to it in time
            with pytest.raises(httpx.TimeoutException):
                httpx.post(server.url + url, json=body, timeout=seconds)
            seconds *= 2
        server.until(lambda: backend.stopped == backend.begun)


@by_wire
def test_the_model_says_the_same_in_a_stream(model: Engine, wire: Wire) -> None:
    request = Request("Hello", limit=12)
    whole = wire.ask(model, request, stream=False)
    assert whole == wire.ask(model, request, stream=True)
    assert whole.text


@by_wire
@both_ways
def test_a_schema_is_enforced(model: Engine, wire: Wire, *, stream: bool) -> None:
    schema: dict[str, Any] = {"type": "string", "enum": ["left", "right"]}
    read = wire.ask(model, Request(schema=schema), stream=stream)
    assert read.text in ('"left"', '"right"')


@by_wire
@both_ways
def test_a_prompt_that_is_too_long_for_the_model(
    model: Engine, wire: Wire, *, stream: bool
) -> None:
    failed(wire, wire.send(model, Request("word " * 3000), stream=stream), 400)
