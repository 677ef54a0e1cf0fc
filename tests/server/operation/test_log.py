"""The ids of requests, and the log as JSON: what a line has, and what it never has."""

import json
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.keys import KeyStore
from shepherd.server.operation.log import MAX_LINE, MAX_LINES, JsonLines, logging_to_stderr
from shepherd.server.settings import ServerSettings
from tests.cli.program import Program
from tests.patience import PATIENCE
from tests.server.harness import CHAT, RunningServer, Scripted, scripted

SECRET = "the-secret-word"
BODY = {"model": "default", "messages": [{"role": "user", "content": SECRET}]}


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """What the loggers of the package write as JSON."""
    stream, logger = StringIO(), logging.getLogger("shepherd")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted(f"text: {SECRET}") as running:
        yield running


def sent_back(server: Scripted, *ids: bytes) -> str:
    headers = [("x-request-id", value) for value in ids]
    response = httpx.get(f"{server.url}/health", headers=headers, timeout=PATIENCE)  # type: ignore[arg-type] - pairs of text and bytes work too
    assert response.headers["x-request-id"] == response.headers["request-id"]
    return response.headers["x-request-id"]


@pytest.mark.parametrize("chosen", [b"abc", b"550e8400-e29b-41d4-a716-446655440000", b"A" * 128])
def test_an_id_of_the_client_is_sent_back(server: Scripted, chosen: bytes) -> None:
    assert sent_back(server, chosen).encode() == chosen


@pytest.mark.parametrize(
    "ids",
    [
        (),
        (b"",),
        (b"A" * 129,),
        (b"a b",),
        (b'"}',),
        (b"-x",),
        (b"\xff",),
        (b"one", b"two"),
        (b"a\tb",),
    ],
)
def test_other_ids_are_replaced(server: Scripted, ids: tuple[bytes, ...]) -> None:
    assert sent_back(server, *ids).startswith("req_")


def test_a_line_tells_all_of_a_request_but_no_texts_and_no_secrets(
    lines: StringIO, tmp_path: Path
) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop")
    backend = ScriptedBackend(parse_script(f"text: {SECRET}"))
    with RunningServer(backend, ServerSettings(port=0), keys) as server:
        headers = {"Authorization": f"Bearer {key}", "x-request-id": "mine"}
        url = f"{server.url}{CHAT}?key={key}"
        answer = httpx.post(url, json=BODY, headers=headers, timeout=PATIENCE)
        usage = answer.json()["usage"]
        httpx.post(url.partition("?")[0], json=BODY, headers={"x-api-key": "sk-wrong"})
        server.until(lambda: lines.getvalue().count(CHAT) >= 4)
    parsed = [json.loads(line) for line in lines.getvalue().splitlines()]
    first, second = [line for line in parsed if line.get("path") == CHAT]
    expected = {
        "level": "info",
        "request_id": "mine",
        "client": "127.0.0.1",
        "method": "POST",
        "path": CHAT,
        "status": 200,
        "wire": "openai",
        "key": "laptop",
        "model": backend.info.id,
        "prompt_tokens": usage["prompt_tokens"],
        "generated_tokens": usage["completion_tokens"],
        "cached_tokens": 0,
    }
    assert {name: first[name] for name in expected} == expected
    assert first["seconds"] >= first["first_token_seconds"] > 0
    assert first["time"].endswith("+00:00")
    assert (second["status"], second["key"], second["model"]) == (401, None, None)
    for secret in (SECRET, key, "sk-wrong"):
        assert secret not in lines.getvalue()


def test_the_last_lines_are_kept_as_the_log_writes_them(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop")
    with logging_to_stderr() as lines:
        backend = ScriptedBackend(parse_script(f"text: {SECRET}"))
        with RunningServer(backend, ServerSettings(port=0), keys) as server:
            for path in ("/health", f"/{'x' * 5000}?key={key}", f"{CHAT}?key={key}"):
                headers = {"Authorization": f"Bearer {key}"}
                httpx.request(
                    "POST" if path.startswith(CHAT) else "GET",
                    server.url + path,
                    json=BODY,
                    headers=headers,
                    timeout=PATIENCE,
                )
            server.until(lambda: any(CHAT in line["message"] for line in lines))
        messages = [line["message"] for line in lines]
        assert not [message for message in messages if "/health" in message]
        (long,) = [message for message in messages if "xxx" in message]
        assert len(long) < MAX_LINE + 10
        assert " GET /xxx" in long
        assert " 403 " in long
        assert {line.get("key") for line in lines if CHAT in line["message"]} == {"laptop"}
        for secret in (SECRET, key):
            assert secret not in str(list(lines))
        try:
            raise KeyError(SECRET)
        except KeyError:
            logging.getLogger("uvicorn.error").exception("failed")
        assert lines[-1]["exception"].endswith("KeyError")
        assert "'the-secret-word'" not in str(lines[-1])
        for number in range(2 * MAX_LINES):
            logging.getLogger("shepherd.any").warning("line %d", number)
        assert len(lines) == MAX_LINES
        assert lines[-1]["message"] == f"line {2 * MAX_LINES - 1}"
    logging.getLogger("shepherd.any").warning("after the end")
    assert "after" not in lines[-1]["message"]


@given(st.text())
def test_every_message_is_one_line_of_json(text: str) -> None:
    record = logging.LogRecord("shepherd", logging.INFO, "", 0, "%s", (text,), None)
    line = JsonLines().format(record)
    assert line.isprintable() or "\n" not in line
    assert "\n" not in line
    parsed: Any = json.loads(line)
    assert (parsed["level"], parsed["logger"]) == ("info", "shepherd")


def test_an_exception_is_reported_without_its_message() -> None:
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        info = type(error), error, error.__traceback__
        record = logging.LogRecord("shepherd", logging.ERROR, "", 0, "failed", (), info)
    line = JsonLines().format(record)
    assert json.loads(line)["exception"].endswith("KeyError")
    assert SECRET not in line.replace("raise KeyError(SECRET)", "")


def test_the_program_writes_json_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    program = Program(tmp_path, tmp_path)
    options = ("--server", "--port", "0", "--log-format", "json")
    with program.start_scripted("text: hi", *options) as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        url = first["message"].split()[-1].removesuffix("/v1")
        assert httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200
        process.terminate()
        _, rest = process.communicate(timeout=PATIENCE)
    paths = [json.loads(line).get("path") for line in rest.splitlines()]
    assert "/health" in paths
