"""`shepherd --server --use-tools`: the program as an agent behind an API."""

from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest

from tests.cli.program import Program
from tests.patience import PATIENCE

SCRIPT = 'call: read_file {"path": "todo.txt"}\n---\ncall: get_date {}\n---\ntext: Done.\n'


@contextmanager
def serving(program: Program, *arguments: str) -> Generator[str]:
    """The base URL of a server process, which is killed at the end."""
    process = program.start("--server", "--port", "0", *arguments)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "Serving" in line:
                yield line.rsplit(" at ", 1)[1].strip()
                break
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def _chat(url: str) -> dict[str, str]:
    body = {"messages": [{"role": "user", "content": "go"}]}
    answer = httpx.post(f"{url}/chat/completions", json=body, timeout=PATIENCE).json()
    choice = answer["choices"][0]
    return {"reason": choice["finish_reason"], "content": choice["message"]["content"]}


@pytest.mark.parametrize("option", ["--use-tools", "setting"])
def test_the_server_answers_as_an_agent(program: Program, option: str) -> None:
    arguments = ["--set", "server.show_tool_calls=content"]
    arguments += ["--use-tools"] if option == "--use-tools" else ["--set", "server.use_tools=true"]
    with serving(program, *program.scripted(SCRIPT), *arguments) as url:
        answer = _chat(url)
    assert answer["reason"] == "stop"
    lines = answer["content"].split("\n\n")
    assert lines[0] == '> **read_file** `{"path": "todo.txt"}` → 1 line'
    assert lines[1].startswith("> **get_date**")
    assert lines[-1] == "Done."


@pytest.mark.parametrize(("tasks", "outcome"), [(4, "1 line"), (0, "Error: ")])
def test_the_settings_decide_on_sub_agents(program: Program, tasks: int, outcome: str) -> None:
    script = program.scripted('call: task {"prompt": "look"}\n---\ntext: Milk.\n---\ntext: Done.')
    shown = ["--set", "server.show_tool_calls=content", "--set", f"tools.tasks={tasks}"]
    with serving(program, *script, "--use-tools", *shown) as url:
        content = _chat(url)["content"]
    assert content.startswith('> **task** `{"prompt": "look"}` → ')
    assert outcome in content


def test_the_rounds_can_be_set(program: Program) -> None:
    script = program.scripted(SCRIPT)
    with serving(program, *script, "--use-tools", "--tool-rounds", "2") as url:
        assert _chat(url) == {"reason": "length", "content": ""}


@pytest.mark.parametrize("rounds", ["0", "-1", "x"])
def test_other_numbers_of_rounds_are_refused(program: Program, rounds: str) -> None:
    ended = program.run("--server", "--use-tools", "--tool-rounds", rounds)
    assert ended.returncode == 2
    assert "rounds" in ended.stderr
