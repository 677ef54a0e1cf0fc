"""instructor: objects from a model."""

from typing import Any

import pytest
from pydantic import BaseModel

from tests.clients.page import example
from tests.clients.serving import Server

instructor: Any = pytest.importorskip("instructor", reason="instructor is not installed")


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


ADA = {"name": "Ada", "age": 36}
REQUEST: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": "Who?"}],
    "response_model": Person,
}


@pytest.mark.client("instructor", "Chat")
@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA", "JSON"])
def test_modes_of_chat(server: Server, mode: str) -> None:
    names = example("instructor", server.url)
    client: Any = instructor.from_openai(names["openai"], mode=instructor.Mode[mode])
    assert client.create(**REQUEST).model_dump() == ADA
    assert list(client.create_partial(**REQUEST))[-1].model_dump() == ADA
    assert names["clients"]["Chat"].create(**REQUEST).model_dump() == ADA


@pytest.mark.client("instructor", "Messages")
def test_messages(server: Server) -> None:
    client: Any = example("instructor", server.url)["clients"]["Messages"]
    assert client.create(**REQUEST, max_tokens=100).model_dump() == ADA
