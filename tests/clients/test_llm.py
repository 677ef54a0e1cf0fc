"""The command `llm`: a prompt, a tool, a schema and vectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.assistant import HELLO, WEATHER
from tests.clients.page import run
from tests.clients.serving import Server

pytest.importorskip("llm", reason="llm is not installed")

FUNCTION = '''
def weather(place: str) -> str:
    """The weather of a place."""
    return "sunny" if place == "Bern" else "unknown"
'''


@pytest.mark.client("llm", "Chat")
def test_chat(server: Server, tmp_path: Path) -> None:
    def llm(*arguments: str) -> str:
        return run("llm", server.url, tmp_path, ["-m", "shepherd", *arguments]).strip()

    assert llm("Hi") == llm("Hi", "--no-stream") == HELLO
    assert llm("How is the weather?", "--functions", FUNCTION) == WEATHER
    assert json.loads(llm("Who?", "--schema", "name, age int")) == {"name": "Ada", "age": 36}


@pytest.mark.client("llm", "Embeddings")
def test_embeddings(server: Server, tmp_path: Path) -> None:
    def embed(text: str) -> Any:
        return json.loads(run("llm", server.url, tmp_path, ["embed", "-m", "3-small", "-c", text]))

    assert embed("a") == embed("a") != embed("b")
