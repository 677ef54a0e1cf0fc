"""`chat_template_kwargs`: honoured in this process, bounded, refused by name elsewhere."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shepherd.backends.base import ModelInfo
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import MAX_TEMPLATE_BYTES, session_from_request
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer


class RemoteScript(ScriptedBackend):
    """A script that looks like a provider."""

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("remote", "openai", 1000)


@pytest.fixture(scope="module", params=[ScriptedBackend, RemoteScript])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer[ScriptedBackend]]:
    with RunningServer(request.param(parse_script("text: hi"))) as running:
        yield running


def post(server: RunningServer[ScriptedBackend], values: Any) -> httpx.Response:
    body = {"messages": HI, "chat_template_kwargs": values}
    return httpx.post(server.url + CHAT, json=body, timeout=PATIENCE)


def test_values_are_honoured_or_refused_by_name(server: RunningServer[ScriptedBackend]) -> None:
    assert post(server, {"enable_thinking": False, "style": None}).is_success
    answer = post(server, {"preserve_thinking": True})
    if isinstance(server.backend, RemoteScript):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
        assert error["param"] == "chat_template_kwargs.preserve_thinking"
    else:
        assert answer.is_success


@pytest.mark.parametrize(
    "values",
    [
        {"messages": []},
        {"tools": None, "strftime_now": "x"},
        {"raise_exception": 1},
        {"__class__": 1},
        {"a b": 1},
        {"": 1},
        {"x" * 65: 1},
        {"x": "y" * MAX_TEMPLATE_BYTES},
        {"enable_thinking": "perhaps"},
        [1],
        "x",
    ],
)
def test_other_values_are_a_bad_request(
    server: RunningServer[ScriptedBackend], values: Any
) -> None:
    answer = post(server, values)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("chat_template_kwargs")


@pytest.mark.parametrize("name", ["enable_thinking", "thinking"])
def test_both_names_of_thinking_mean_the_same(name: str) -> None:
    body = {"messages": HI, "chat_template_kwargs": {name: True, "style": {"a": [1]}}}
    session = session_from_request(ChatRequest.model_validate(body), thinking=False)
    assert session.thinking
    assert session.template_values == {"style": {"a": [1]}}
