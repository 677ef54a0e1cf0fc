"""The command of the page: clients of four APIs and one process of `shepherd --server`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.clients.page import PAGE, SERVER, example
from tests.patience import PATIENCE

COMMAND = "shepherd --server --port 8000"
HELLO = "Hello, shepherd."


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of the command, which runs on another port."""
    assert f"`{COMMAND}`" in PAGE.read_text("utf-8")
    assert SERVER.endswith(COMMAND.split()[-1])
    options = [*COMMAND.split()[1:-1], "0", "--log-format", "json"]
    program = Program(tmp_path, tmp_path)
    with program.start_scripted(f"text: {HELLO}", *options) as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        yield first["message"].split()[-1].removesuffix("/v1")
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_clients_of_four_apis(url: str) -> None:
    openai = example("openai", url)["client"]
    assert openai.responses.create(model="default", input="Hi").output_text == HELLO
    anthropic = example("anthropic", url)["client"]
    messages = [{"role": "user", "content": "Hi"}]
    answer = anthropic.messages.create(model="default", max_tokens=9, messages=messages)
    assert answer.content[0].text == HELLO
    google = example("google-genai", url)["client"]
    assert google.models.generate_content(model="default", contents="Hi").text == HELLO
    ollama = example("ollama", url)["client"]
    assert ollama.chat("default", messages).message.content == HELLO
    for client in (openai, anthropic, google, ollama):
        client.close()
