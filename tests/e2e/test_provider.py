"""`/provider` does in the prompt what `shepherd provider` does in the shell."""

import asyncio
import tomllib
from pathlib import Path

import pytest

from tests.backends.openai_server import openai_server
from tests.e2e.conftest import Start
from tests.e2e.terminal import ENTER, ESCAPE, Terminal

READY = r"approve: ask"
KEY = "sk-test-1234567890abcd"


def kept(home: Path, name: str) -> str:
    path = home / ".config" / "shepherd" / name
    return path.read_text() if path.exists() else ""


@pytest.fixture
def scripts(home: Path) -> list[str]:
    """Models of two providers, which play scripts."""
    paths = [home / f"{name}.txt" for name in ("alpha", "beta")]
    for path in paths:
        path.write_text(f"text: I am {path.stem}.\n")
    return [f"script:{path}" for path in paths]


def prompt(start: Start, **options: object) -> Terminal:
    terminal = start("text: I am local.\n", columns=200, rows=50, **options)
    terminal.wait_for(READY)
    return terminal


def test_providers_are_managed_in_the_prompt(start: Start, home: Path, scripts: list[str]) -> None:
    terminal = prompt(start)
    alpha, beta = scripts
    terminal.say(f"/provider add alpha --type llamacpp -m {alpha}")
    terminal.wait_for("/provider test alpha. tries it")
    terminal.say(f"/provider add beta --type llamacpp -m {beta} --use --priority 7")
    terminal.wait_for("beta/script:.* answers from now on")
    terminal.say("who")
    terminal.wait_for("I am beta")
    assert "beta" in kept(home, "config.toml")
    terminal.say("/provider show beta")
    terminal.wait_for("priority +7")
    terminal.say("/provider test alpha")
    terminal.wait_for("alpha: alpha runs in this process")
    terminal.say("/provider set alpha priority 3")
    terminal.wait_for("alpha: priority is changed")
    stored = tomllib.loads(kept(home, "providers.toml"))
    assert (stored["alpha"]["priority"], stored["beta"]["priority"]) == (3, 7)
    terminal.say("/provider use alpha")
    terminal.wait_for("Now talking to alpha of the provider alpha")
    terminal.wait_for("alpha/script:.* answers from now on")
    assert "alpha" in kept(home, "config.toml")
    terminal.say("/provider remove alpha")
    terminal.wait_for("Provider alpha is removed")
    terminal.say("who is left")
    terminal.wait_for("I am local")
    assert "alpha" not in kept(home, "config.toml") + kept(home, "providers.toml")
    terminal.say("/provider next")
    terminal.wait_for("Now talking to beta of the provider beta; ")


def test_what_answers_follows_its_settings(start: Start, scripts: list[str]) -> None:
    terminal = prompt(start)
    alpha, beta = scripts
    terminal.say(f"/provider add one --type llamacpp --model {alpha} --use")
    terminal.wait_for("one/script:.* answers from now on")
    terminal.say(f"/provider set one model {beta}")
    terminal.wait_for("Now talking to beta of the provider one")
    terminal.say("/provider set one model script:/nowhere")
    terminal.wait_for("Error: ")
    terminal.say(f"/provider set one model {alpha}")
    terminal.wait_count("Now talking to alpha of the provider one", 2)
    terminal.say("who")
    terminal.wait_for("I am alpha")


def test_mistakes_end_nothing(start: Start, home: Path) -> None:
    terminal = prompt(start)
    mistakes = {
        "add": "Missing argument",
        "add x": "Missing option '--type'",
        "add x --type openia": "x.type must be one of",
        "add x --type openai --base-url host": "must begin with http",
        "add x --type openai --modle y": "No such option",
        "add x --type 'openai": "A quotation mark is missing",
        "tst nobody": "did you mean test?",
        "lst": "did you mean list?",
        "set nobody priority -1": "`/provider add --help`",
        "set nobody model x": "no provider 'nobody'",
        "set nobody": "Missing argument",
        "show nobody": "no provider 'nobody'",
        "test nobody": "no provider 'nobody'",
        "use nobody": "no provider 'nobody'",
        "remove nobody": "no provider 'nobody'",
    }
    for count, typed in enumerate(mistakes, start=1):
        terminal.say(f"/provider {typed}")
        terminal.wait_count("Error: ", count)
    shown = terminal.settle().split("Error: ")[1:]
    assert [
        told for told, text in zip(mistakes.values(), shown, strict=True) if told not in text
    ] == []
    terminal.say("/provider set --help")
    terminal.wait_for("Usage: /provider set")
    terminal.say("who")
    terminal.wait_for("I am local")
    assert kept(home, "providers.toml") == ""


def assert_hidden(home: Path, terminal: Terminal) -> None:
    assert KEY not in terminal.text()
    state = [path for path in (home / ".local/state").rglob("*") if path.is_file()]
    assert state
    assert all(KEY.encode() not in path.read_bytes() for path in state)


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_keys_are_asked_for_and_not_shown(start: Start, home: Path, term: str) -> None:
    terminal = start("text: Hi.\n", columns=200, rows=50, env={"TERM": term})
    terminal.wait_for(READY if term != "dumb" else r"(?m)^>$")
    terminal.send(f"/provider add work --type openai --model m{ENTER}")
    terminal.wait_for("Key of work:")
    terminal.send(KEY + ENTER)
    terminal.wait_for("Provider work is added")
    assert kept(home, "credentials.toml") == f'work = "{KEY}"\n'
    if term != "dumb":
        terminal.wait_gone("Key of work:")
    terminal.settle(0.05)
    terminal.send(f"/provider set work api-key{ENTER}")
    terminal.wait_count("Key of work:", 1 if term != "dumb" else 2)
    terminal.settle(0.05)  # the field takes keys now, and not the prompt
    terminal.send(f"{KEY}-2{ENTER}")
    terminal.wait_for("work: api-key is changed")
    assert kept(home, "credentials.toml") == f'work = "{KEY}-2"\n'
    terminal.send(f"hello{ENTER}")
    terminal.wait_for("Hi")
    assert KEY.encode() not in terminal.output
    assert_hidden(home, terminal)


def test_a_question_for_a_key_can_be_left(start: Start, home: Path) -> None:
    terminal = prompt(start)
    terminal.say("/provider add work --type openai --model m")
    terminal.wait_for("Key of work:")
    terminal.send(ESCAPE)
    terminal.wait_gone("Key of work:")
    terminal.say("who")
    terminal.wait_for("I am local")
    assert kept(home, "providers.toml") == ""


async def test_a_key_in_the_line_is_used_and_kept_nowhere(start: Start, home: Path) -> None:
    async with openai_server("x", context=5000) as server:
        given = f"--type openai --base-url {server.url} --api-key {KEY}"
        await asyncio.to_thread(add_and_test, start, home, given)
        assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {KEY}"}


def add_and_test(start: Start, home: Path, given: str) -> None:
    terminal = prompt(start)
    terminal.say(f"/provider add work {given}")
    terminal.wait_for("Provider work is added")
    terminal.say("/provider test work")
    terminal.wait_for("context: 5,000 tokens, from ")
    assert "key sk-…abcd" in terminal.text()
    assert_hidden(home, terminal)
    terminal.settle()
    terminal.send("\x1b[A\x1b[A")
    terminal.wait_count("--api-key -", 2)


async def test_another_answers_in_place_of_one_that_is_removed(start: Start, home: Path) -> None:
    async with openai_server("I am work.") as server:
        await asyncio.to_thread(remove_what_answers, start, server.url)


def remove_what_answers(start: Start, url: str) -> None:
    terminal = prompt(start)
    terminal.say(f"/provider add work --type openai --base-url {url} --use")
    terminal.wait_for("work answers from now on")
    terminal.say("who")
    terminal.wait_for("I am work")
    terminal.say("/provider remove work")
    terminal.wait_for("Provider work is removed")
    terminal.wait_for("The local model answers from now on")
    for command in ("/provider", "/model", "/context", "/provider next"):
        terminal.say(command)
    terminal.say("who now")
    terminal.wait_for("I am local")
    assert "Error" not in terminal.settle()
