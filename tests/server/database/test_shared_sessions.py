"""Conversations of two servers, each on a machine of its own, with one PostgreSQL."""

import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.program import Program
from tests.patience import PATIENCE, POLL
from tests.postgres import PASSWORD, RealPostgres

SCRIPT = "text: one\n---\ntext: two\n---\ntext: three"


@pytest.fixture
def machines(tmp_path: Path, postgres: RealPostgres) -> list[Program]:
    """Two homes with the same settings and the same directory."""
    address = postgres.new_database()
    settings = f'[server]\ndatabase = "{address.url}"\ndatabase_password = "env:DB_PASSWORD"\n'
    (tmp_path / "work").mkdir()
    programs = [
        Program(tmp_path / name, tmp_path / "work", {"DB_PASSWORD": PASSWORD}) for name in "ab"
    ]
    for program in programs:
        program.config.mkdir(parents=True)
        (program.config / "config.toml").write_text(settings)
    return programs


@contextmanager
def serving(
    program: Program, *options: str
) -> Generator[tuple[httpx.Client, Callable[[int], None]]]:
    """A client of a new server, and a way to end the server with a signal."""
    arguments = ("--cliserver", "--port", "0", *options)
    with program.start_scripted(SCRIPT, *arguments) as process:
        assert process.stderr is not None
        output = list[str]()

        def end(number: int) -> None:
            process.send_signal(number)
            process.wait(PATIENCE)

        try:
            while "Serving " not in "".join(output[-1:]):
                output.append(process.stderr.readline())
                assert output[-1], output
            with httpx.Client(base_url=output[-1].split()[-1], timeout=PATIENCE) as client:
                yield client, end
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL)


def ask(client: httpx.Client, prompt: str) -> str:
    answer = client.post("/request", json={"prompt": prompt})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["content"])


def titles(client: httpx.Client) -> dict[str, str]:
    return {s["id"]: s["title"] for s in client.get("/sessions").json()["sessions"]}


def contents(client: httpx.Client) -> list[str]:
    return [message["content"] for message in client.get("/session").json()["messages"]]


def resumes(client: httpx.Client, id: str) -> bool:
    return client.post(f"/sessions/{id}").status_code == 200


def test_a_conversation_moves_between_servers(machines: list[Program]) -> None:
    first, second = machines
    with serving(second) as (other, end_other):
        with serving(first) as (client, end):
            assert ask(client, "hello") == "one"
            name = client.get("/session").json()["id"]
            assert titles(other) == {name: "hello"}
            refused = other.post(f"/sessions/{name}")
            assert refused.status_code == 404
            assert "open in another" in refused.json()["error"]["message"]
            end(signal.SIGKILL)
        until(lambda: resumes(other, name))
        assert contents(other) == ["hello", "one"]
        assert ask(other, "go on") == "one"
        with serving(first) as (client, _):
            assert contents(client) == []
            assert not resumes(client, name)
        end_other(signal.SIGTERM)
    with serving(first, "--resume", name) as (client, end):
        assert contents(client) == ["hello", "one", "go on", "one"]
        assert client.post("/command", json={"command": "/rewind 2"}).status_code == 200
        assert ask(client, "again") == "one"
        end(signal.SIGTERM)
    assert [program.sessions for program in machines] == [[], []]
    shown = second.run("sessions", "show", name, "--database").stdout
    assert "> again" in shown
    assert "go on" not in shown
    assert second.run("sessions", "delete", name, "--database").returncode == 0
    assert second.run("sessions", "list", "--database").stdout == ""


def test_sessions_that_can_not_be_reached_are_a_503(
    machines: list[Program], postgres: RealPostgres
) -> None:
    with serving(machines[0]) as (client, _):
        ask(client, "hello")
        name = client.get("/session").json()["id"]
        postgres.kill()
        try:
            for refused in (client.get("/sessions"), client.post("/sessions/x")):
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "store_unavailable"
            assert ask(client, "and?") == "two"
        finally:
            postgres.start()
        until(lambda: "and?" in machines[1].run("sessions", "show", name, "--database").stdout)
