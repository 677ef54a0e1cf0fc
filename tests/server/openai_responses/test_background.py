"""Responses that are made in the background."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from shepherd.server.access.keys import KeyStore
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, scripted
from tests.server.held import HeldBackend
from tests.server.openai_responses.harness import PATH, checked, checked_events, created, post

Held = RunningServer[HeldBackend]


@pytest.fixture
def held() -> Iterator[Held]:
    with RunningServer(HeldBackend(hold_generation=True)) as server:
        yield server
        server.do(let_go(server.backend))


async def let_go(backend: HeldBackend) -> None:
    backend.go.set()


def url(server: RunningServer[Any], response: dict[str, Any], path: str = "") -> str:
    return f"{server.url}{PATH}/{response['id']}{path}"


def state(server: RunningServer[Any], response: dict[str, Any]) -> dict[str, Any]:
    return checked(httpx.get(url(server, response), timeout=PATIENCE).json())


def events(server: Held, response: dict[str, Any], after: int | None = None) -> list[Any]:
    query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
    answer = httpx.get(url(server, response), params=query, timeout=PATIENCE)
    return checked_events(answer.text, 0 if after is None else after + 1)


def test_a_response_is_made_while_no_client_waits(held: Held) -> None:
    response = created(held, background=True)
    assert (response["status"], response["background"]) == ("queued", True)
    held.until(lambda: held.backend.working == 1)
    refused = post(held, {"previous_response_id": response["id"]})
    assert refused.status_code == 400
    assert state(held, response)["status"] in ("queued", "in_progress")
    held.do(let_go(held.backend))
    every = events(held, response)
    kinds = [event["type"].removeprefix("response.") for event in every]
    assert kinds[:3] == ["created", "queued", "in_progress"]
    assert kinds[-1] == "completed"
    assert [every[i]["response"]["status"] for i in range(3)] == ["queued", "queued", "in_progress"]
    assert events(held, response, after=3) == every[4:]
    assert state(held, response) == every[-1]["response"]
    created(held, previous_response_id=response["id"])


def test_the_official_client_polls_and_cancels(held: Held) -> None:
    with held.client() as client:
        response = client.responses.create(model="m", input="hi", background=True)
        held.until(lambda: held.backend.working == 1)
        assert client.responses.cancel(response.id).status == "cancelled"
        assert held.backend.stopped == 1
        assert client.responses.cancel(response.id).status == "cancelled"
        assert client.responses.retrieve(response.id).status == "cancelled"
        held.do(let_go(held.backend))
        whole = client.responses.create(model="m", input="hi")
        with pytest.raises(openai.BadRequestError, match="background=true"):
            client.responses.cancel(whole.id)


def test_a_stream_can_be_left_and_resumed(held: Held) -> None:
    with held.client() as client:
        stream = client.responses.create(model="m", input="hi", background=True, stream=True)
        first = next(stream)
        assert first.type == "response.created"
        stream.close()
        held.until(lambda: held.backend.working == 1)
        held.do(let_go(held.backend))
        rest = list(client.responses.retrieve(first.response.id, stream=True, starting_after=0))
    assert [event.sequence_number for event in rest] == list(range(1, len(rest) + 1))
    assert rest[-1].type == "response.completed"
    assert held.backend.stopped == 0


def test_a_deleted_response_is_stopped(held: Held) -> None:
    response = created(held, background=True)
    held.until(lambda: held.backend.working == 1)
    answer = httpx.delete(url(held, response), timeout=PATIENCE)
    assert answer.json() == {"id": response["id"], "object": "response", "deleted": True}
    assert held.backend.stopped == 1
    assert httpx.get(url(held, response), timeout=PATIENCE).status_code == 404


def test_a_removed_key_stops_the_work(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("mine")
    backend = HeldBackend(hold_generation=True)
    with RunningServer(backend, keys=keys) as server:
        headers = {"Authorization": f"Bearer {key}"}
        assert post(server, {"background": True}, **headers).status_code == 200
        server.until(lambda: backend.working == 1)
        keys.remove("mine")
        server.until(lambda: backend.stopped == 1)


def test_what_fails_is_told_by_the_response() -> None:
    with scripted("text: one\nerror: gone") as server:
        response = created(server, background=True)
        with server.client() as client:
            last = list(client.responses.retrieve(response["id"], stream=True))[-1]
        failed = state(server, response)
    assert last.type == "response.failed"
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")


def test_a_conversation_that_does_not_fit_fails_later() -> None:
    with scripted("context: 20\ntext: one") as server:
        response = created(server, background=True, input="word " * 30)
        with server.client() as client:
            list(client.responses.retrieve(response["id"], stream=True))
        failed = state(server, response)
    assert failed["error"]["code"] == "invalid_prompt"
    assert "maximum context length" in failed["error"]["message"]


def test_a_request_that_is_wrong_is_refused_at_once(held: Held) -> None:
    refused = post(held, {"background": True, "tool_choice": "required"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")
    assert post(held, {"background": True, "store": False}).status_code == 400


def test_a_response_of_an_earlier_process_has_failed(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, responses_file=tmp_path / "responses.db")
    with RunningServer(HeldBackend(hold_generation=True), settings) as server:
        response = created(server, background=True)
        server.until(lambda: server.backend.working == 1)
        with RunningServer(HeldBackend(), settings) as other:
            interrupted = state(other, response)
        server.do(let_go(server.backend))
        server.until(lambda: server.backend.holding == 0)
        assert state(server, response)["status"] in ("in_progress", "completed")
    assert (interrupted["status"], interrupted["error"]["code"]) == ("failed", "server_error")


def test_events_of_other_responses_are_not_kept(held: Held) -> None:
    held.do(let_go(held.backend))
    response = created(held)
    for query in ({"stream": "true"}, {"stream": "true", "starting_after": "-1"}):
        answer = httpx.get(url(held, response), params=query, timeout=PATIENCE)
        assert answer.status_code == 400
    assert httpx.get(f"{held.url}{PATH}/resp_0?stream=true").status_code == 404
