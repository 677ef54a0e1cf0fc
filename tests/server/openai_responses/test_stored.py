"""Responses that are stored: used later, listed, deleted, and only by the key that made them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import TypeAdapter

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.keys import KeyStore
from shepherd.server.openai_responses.store import DAY_SECONDS, MIB, ResponseStore, StoredResponse
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.harness import RunningServer, Scripted
from tests.server.openai_responses.harness import PATH, checked, created, post, streamed

SCRIPT = """
think: Hm.
text: one
call: f {"a": 1}
---
text: two
---
text: three
"""
TOOLS: list[Any] = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]


def serving(file: Path | None = None, script: str = SCRIPT, **settings: Any) -> Scripted:
    settings = {"port": 0, "responses_file": file} | settings
    return RunningServer(ScriptedBackend(parse_script(script)), ServerSettings(**settings))


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as running:
        yield running


def get(server: Scripted, path: str, key: str = "", **query: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"{server.url}{PATH}/{path}"
    return httpx.get(url, params=query, headers=headers, timeout=PATIENCE)


def answered(first: dict[str, Any]) -> list[dict[str, Any]]:
    """The output for the call in a response, and a question."""
    call = first["output"][-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "1"}
    return [output, {"role": "user", "content": "and?"}]


@pytest.mark.parametrize("way", [created, streamed])
def test_a_conversation_goes_on_with_a_stored_response(server: Scripted, way: Any) -> None:
    first = created(server, tools=TOOLS, instructions="Be brief.")
    body: dict[str, Any] = {"previous_response_id": first["id"], "input": answered(first)}
    second = way(server, **body)
    second = second if way is created else second[-1]["response"]
    assert second["previous_response_id"] == first["id"]
    third = created(server, previous_response_id=second["id"], input="again")
    assert third["output"][0]["content"][0]["text"] == "three"
    # user, answer, output, user, answer, user
    assert server.backend.requests == [1, 4, 6]


def test_the_same_prompt_comes_of_items_and_of_a_stored_response(server: Scripted) -> None:
    first = created(server, tools=TOOLS)
    sent = [{"role": "user", "content": "hi"}, *first["output"], *answered(first)]
    by_items = created(server, input=sent, tools=TOOLS)
    by_id = created(server, previous_response_id=first["id"], input=answered(first), tools=TOOLS)
    assert by_items["usage"]["input_tokens"] == by_id["usage"]["input_tokens"]


def test_the_official_client_gets_lists_and_deletes(server: Scripted) -> None:
    with server.client() as client:
        first = client.responses.create(model="m", input="hi", tools=TOOLS)
        assert client.responses.retrieve(first.id) == first
        sent: Any = answered(first.model_dump())
        second = client.responses.create(model="m", previous_response_id=first.id, input=sent)
        pages = client.responses.input_items.list(second.id, limit=2, order="asc")
        kinds = [item.type for item in pages]
        latest = client.responses.input_items.list(second.id).data
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.create(model="m", previous_response_id=second.id, input="more")
    expected = ["message", "reasoning", "message", "function_call"]
    assert kinds == [*expected, "function_call_output", "message"]
    assert [item.type for item in latest] == kinds[::-1]
    assert caught.value.code == "previous_response_not_found"


def test_pages_fit_their_type(server: Scripted) -> None:
    sent = [{"role": "user", "content": f"message {n}", "id": f"msg_{n}"} for n in range(5)]
    response = created(server, input=sent)
    place = f"{response['id']}/input_items"
    first = get(server, place, limit=3).json()
    TypeAdapter(ResponseItemList).validate_python(first, strict=True)
    assert [item["id"] for item in first["data"]] == ["msg_4", "msg_3", "msg_2"]
    assert (first["first_id"], first["last_id"], first["has_more"]) == ("msg_4", "msg_2", True)
    rest = get(server, place, after="msg_2").json()
    assert [item["id"] for item in rest["data"]] == ["msg_1", "msg_0"]
    assert not rest["has_more"]
    wrong: dict[str, Any]
    for wrong in ({"limit": 0}, {"limit": "x"}, {"order": "up"}, {"after": "nobody"}):
        assert get(server, place, **wrong).status_code == 400


def test_an_item_can_be_named_by_its_id(server: Scripted) -> None:
    first = created(server, tools=TOOLS)
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    references[0].pop("type")
    sent = [{"role": "user", "content": "hi"}, *references, *answered(first)]
    assert created(server, input=sent)["output"][0]["content"][0]["text"] == "two"
    assert server.backend.requests == [1, 4]
    unknown = post(server, {"input": [{"type": "item_reference", "id": "msg_unknown"}]})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "input.0")


def test_what_is_not_stored_is_not_there(server: Scripted) -> None:
    response = created(server, store=False)
    assert response["store"] is False
    assert get(server, response["id"]).status_code == 404
    refused = post(server, {"previous_response_id": response["id"]})
    assert refused.status_code == 404
    assert refused.json()["error"]["param"] == "previous_response_id"


def test_nothing_is_stored_where_that_is_switched_off() -> None:
    with serving(store_responses_days=0) as server:
        response = created(server)
        assert response["store"] is False
        assert get(server, response["id"]).status_code == 404
        refused = post(server, {"background": True})
    assert refused.status_code == 400
    assert "store_responses_days" in refused.json()["error"]["message"]


def test_responses_outlive_the_server(tmp_path: Path) -> None:
    file = tmp_path / "state" / "responses.db"
    with serving(file) as server:
        first = created(server, tools=TOOLS)
    assert file.stat().st_mode & 0o777 == 0o600
    with serving(file, "text: on") as server:
        assert checked(get(server, first["id"]).json()) == first
        created(server, previous_response_id=first["id"], input=answered(first))
        assert server.backend.requests == [4]


def test_another_key_finds_nothing(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    mine, other = keys.add("mine"), keys.add("other")
    backend = ScriptedBackend(parse_script("text: secret"))
    with RunningServer(backend, ServerSettings(port=0), keys) as server:
        answer = post(server, {"input": "hi"}, Authorization=f"Bearer {mine}").json()
        place, item = answer["id"], answer["output"][0]["id"]
        headers = {"Authorization": f"Bearer {other}"}
        for path in (place, f"{place}/input_items"):
            assert get(server, path, mine).status_code == 200
            assert get(server, path, other).status_code == 404
        for body in (
            {"previous_response_id": place},
            {"input": [{"type": "item_reference", "id": item}]},
        ):
            assert post(server, body, **headers).status_code == 404
        url = f"{server.url}{PATH}/{place}"
        assert httpx.delete(url, headers=headers, timeout=PATIENCE).status_code == 404
        assert httpx.post(f"{url}/cancel", headers=headers, timeout=PATIENCE).status_code == 404
        assert get(server, place, mine).json() == answer


def test_a_store_that_fails_fails_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with serving(tmp_path / "file" / "responses.db") as server:
        assert created(server)["store"] is False
        assert streamed(server)[-1]["response"]["store"] is False
        refused = post(server, {"previous_response_id": "resp_1"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
    assert str(tmp_path) not in refused.text


@pytest.mark.parametrize("path", ["%ff", "%00", "a%2Fb", "%F0%9D%84%9E", "x" * 5000])
def test_odd_ids_are_not_found(server: Scripted, path: str) -> None:
    created(server)
    for place in (path, f"{path}/input_items", f"{path}?stream=true"):
        answer = httpx.get(f"{server.url}{PATH}/{place}", timeout=PATIENCE)
        assert answer.status_code == 404, answer.text
    for query in ("after=%ff", "limit=99999999999999999999", "stream=perhaps"):
        assert httpx.get(f"{server.url}{PATH}/x/input_items?{query}").status_code in (400, 404)


def test_a_damaged_file_is_renamed(tmp_path: Path) -> None:
    file = tmp_path / "responses.db"
    file.write_text("not a database, " * 100)
    with serving(file) as server:
        response = created(server)
        assert get(server, response["id"]).status_code == 200
    assert list(tmp_path.glob("responses.db.damaged-*"))


def stored(id: str, size: int = 10) -> StoredResponse:
    body: dict[str, Any] = {"id": id, "previous_response_id": None, "output": [], "x": "x" * size}
    return StoredResponse(body, ())


async def test_responses_expire_after_their_last_use(tmp_path: Path) -> None:
    now = 1_000_000.0
    store = ResponseStore(tmp_path / "responses.db", days=2, max_mib=1, clock=lambda: now)
    await store.save("", stored("used"))
    await store.save("", stored("unused"))
    now += 1.5 * DAY_SECONDS
    await store.load_chain("", "used", MIB)
    now += 1.5 * DAY_SECONDS
    assert await store.load("", "used") is not None
    assert await store.load("", "unused") is None
    assert not await store.delete("", "unused")


async def test_old_responses_make_room(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    for number in range(4):  # each store prunes with its first response
        store = ResponseStore(path, days=2, max_mib=1)
        await store.save("", stored(f"r{number}", 400_000))
    with sqlite3.connect(path) as connection:
        ids = {row[0] for row in connection.execute("SELECT id FROM responses")}
    connection.close()
    assert len(ids) == 2
