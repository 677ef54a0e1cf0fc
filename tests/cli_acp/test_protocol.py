"""What an editor can send that is not a valid message."""

import json
import signal
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.cli.acp.serve import MessageError, message_line, parse_message
from tests.cli.program import Program
from tests.examples import examples
from tests.forked import SHEPHERD, start_forked
from tests.patience import PATIENCE

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "_meta"])

BROKEN: list[tuple[bytes, int]] = [
    (b"{", -32700),
    (b"\xff\xfe", -32700),
    (b'{"a": NaN}', -32700),
    (b"[" * 100_000, -32700),
    (b"9" * 5000, -32700),
    (b"[]", -32600),
    (b"1", -32600),
    (b"null", -32600),
    (b"{}", -32600),
    (b'{"id": 1e999, "method": "initialize"}', -32600),
    (b'{"id": [], "result": 1}', -32600),
    (b'{"id": true, "method": "initialize"}', -32600),
    (b'{"id": "a", "method": []}', -32600),
    (b'{"id": "a", "method": "initialize", "params": []}', -32600),
    (b'{"id": "a", "method": "initialize"}', -32602),
    (b'{"id": "a", "method": "session/new", "params": {"cwd": 1}}', -32602),
    (b'{"id": "a", "method": "session/prompt", "params": {"sessionId": "s", "prompt": 1}}', -32602),
    (b'{"id": "a", "method": "session/close", "params": {"sessionId": "s"}}', -32602),
    (
        b'{"id": "a", "method": "session/new", "params": {"cwd": "\\u0000", "mcpServers": []}}',
        -32603,
    ),
    (b'{"id": "a", "method": "session/list", "params": {"cursor": "-1"}}', -32602),
    (b'{"id": "a", "method": "\\ud800"}', -32601),
    (b'{"id": null, "method": "_private/thing"}', -32601),
]
SILENT = [
    b"",
    b"  ",
    b'{"method": "session/cancel", "params": {"sessionId": "no such"}}',
    b'{"method": "session/cancel", "params": {"_meta": {"self": 1}}}',
    b'{"method": "no/such"}',
    b'{"id": 1, "result": {}}',
    b'{"id": "a", "error": 1}',
    b'{"id": 0, "error": {"code": "x"}}',
]


INITIALIZE = b'{"id": "last", "method": "initialize", "params": {"protocolVersion": 9}}'


def conversation(program: Program, lines: list[bytes], answers: int) -> "tuple[list[Any], str]":
    """The messages and the errors of `shepherd acp` for these lines, which get `answers`."""
    pipe = subprocess.PIPE
    command = [SHEPHERD, *program.scripted("text: a"), "acp"]
    with start_forked(
        command, program.env, stdin=pipe, stdout=pipe, stderr=pipe, cwd=program.work
    ) as process:
        process.stdin.write(b"".join(line + b"\n" for line in lines))
        process.stdin.flush()
        answered = [process.stdout.readline() for _ in range(answers)]
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return [json.loads(line) for line in (*answered, *out.splitlines())], err.decode()


def test_each_broken_line_gets_one_error_and_ends_nothing(program: Program) -> None:
    lines = [line for line, _ in BROKEN]
    messages, errors = conversation(program, [*SILENT, *lines, INITIALIZE], len(BROKEN) + 1)
    failed = [m for m in messages if "error" in m]
    assert sorted(m["error"]["code"] for m in failed) == sorted(code for _, code in BROKEN)
    assert all(m["error"]["message"] for m in failed)
    assert [m["result"]["protocolVersion"] for m in messages if m["id"] == "last"] == [1]
    assert len(messages) == len(BROKEN) + 1
    assert "Traceback" not in errors
    assert all(line.startswith("shepherd: ") for line in errors.splitlines())


@pytest.mark.parametrize("number", [0, signal.SIGTERM])
def test_a_turn_ends_with_the_editor_or_a_signal(program: Program, number: int) -> None:
    def sent(id: int, method: str, **params: Any) -> Any:
        """The answer, or the first update, after a request."""
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    pipe = subprocess.PIPE
    command = [SHEPHERD, *program.scripted("text: a\ndelay: 600"), "acp"]
    with start_forked(
        command, program.env, stdin=pipe, stdout=pipe, stderr=pipe, cwd=program.work
    ) as process:
        sent(1, "initialize", protocolVersion=1)
        session = sent(2, "session/new", cwd=str(program.work), mcpServers=[])["result"]
        process.stdout.readline()  # the commands
        prompt = [{"type": "text", "text": "hi"}]
        update = sent(3, "session/prompt", sessionId=session["sessionId"], prompt=prompt)
        assert update["method"] == "session/update"
        if number:
            process.send_signal(number)
        else:
            process.stdin.close()
        assert process.wait(PATIENCE) == (128 + number if number else 0)
        assert process.stderr.read() == b""


def parsed(line: bytes) -> Any:
    """The message in the line, or the answer that reports its error."""
    try:
        return parse_message(line)
    except MessageError as error:
        return error.response


@given(st.binary() | JSON.map(lambda data: json.dumps(data).encode()))
@settings(max_examples=examples(100))
def test_any_line_is_a_message_or_an_error(line: bytes) -> None:
    message = parsed(line)
    assert json.loads(message_line(message)) == message


@given(st.dictionaries(KEYS, JSON))
@settings(max_examples=examples(100))
def test_any_object_is_a_checked_message_or_an_error(data: dict[str, Any]) -> None:
    message = parsed(json.dumps(data).encode())
    assert isinstance(message.get("id"), str | int | None)
    assert not isinstance(message.get("id"), bool)
    if "method" in message:
        assert isinstance(message["method"], str)
        assert "_meta" not in message["params"]
    elif "error" in message:
        assert isinstance(message["error"]["code"], int)


@pytest.mark.parametrize("line", [b'{"id": 1, "method": "x", "params": null}', b'{"method": "x"}'])
def test_missing_parameters_are_none(line: bytes) -> None:
    assert parse_message(line)["params"] == {}
