"""A server that is stopped and goes on, clocks that jump, model files that change, two at once."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from shepherd.backends.llamacpp.cache.disk_cache import DiskCache, Fingerprint, fingerprint
from shepherd.backends.llamacpp.cache.disk_file import StateFolder
from shepherd.backends.llamacpp.cache.prefixes import Query
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.models import builtin_model
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.test_disk_cache import stored
from tests.cli.program import Program
from tests.faults.homes import SESSIONS, check_home
from tests.patience import PATIENCE

SLOW = "chunk: 5\n" + "text: word word word word\ndelay: 0.01\n" * 50
YEAR = 365 * 86_400.0


@contextmanager
def serving(program: Program, *arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A server process and its base URL."""
    process = program.start("--server", "--port", "0", *arguments)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "Serving" in line:
                yield process, line.rsplit(" at ", 1)[1].strip()
                break
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def chat(url: str, content: str, **fields: object) -> dict[str, object]:
    body = {"model": "default", "messages": [{"role": "user", "content": content}], **fields}
    answer = httpx.post(f"{url}/chat/completions", json=body, timeout=PATIENCE)
    return {"status": answer.status_code, **answer.json()}


def streamed(url: str) -> Generator[str]:
    """The pieces of an answer as they come."""
    body = {"model": "default", "messages": [{"role": "user", "content": "go"}], "stream": True}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=PATIENCE) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line[6:])["choices"][0]["delta"].get("content") or ""


@pytest.mark.parametrize("moment", [0, 3, 20])
def test_a_server_that_is_stopped_goes_on_where_it_was(program: Program, moment: int) -> None:
    script = program.scripted(SLOW)
    with serving(program, *script) as (process, url):
        pieces: list[str] = []
        for number, piece in enumerate(streamed(url)):
            if number == moment:
                process.send_signal(signal.SIGSTOP)
                time.sleep(1.5)
                process.send_signal(signal.SIGCONT)
            pieces.append(piece)
        assert "".join(pieces).count("word") == 200
        assert chat(url, "again")["status"] == 200


def test_a_command_that_is_stopped_with_its_shepherd_ends_with_it(program: Program) -> None:
    call = '{"command": "echo on; sleep 0.3; echo off"}'
    done = program.start_scripted(
        f"call: execute_command {call}\n---\ntext: done\n", "-e", "go", "--approve", "all"
    )
    time.sleep(0.4)
    done.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    done.send_signal(signal.SIGCONT)
    out, err = done.communicate(timeout=PATIENCE)
    assert done.returncode == 0, err
    assert "done" in out


def test_files_from_the_future_do_not_keep_their_place(tmp_path: Path) -> None:
    """The clock was ten years ahead for a while: what is used now goes before that."""
    folder = tmp_path / "cache"
    mine = Fingerprint("place", "origin", "context")
    cache = DiskCache(StateFolder(folder, 60_000), mine)
    for number in range(2):
        cache.save(stored(number, 300, 20_000, time.time() + 10 * YEAR))
    now = stored(5, 300, 20_000, time.time())
    cache.save(now)
    found, length = cache.find(Query(now.tokens), rolls_back=True)
    assert found is not None
    assert length == 299
    assert len(list(folder.glob("*.state"))) == 2


@pytest.mark.parametrize("shift", [-30 * YEAR, 10 * YEAR])
def test_sessions_load_whatever_the_clock_said(program: Program, shift: float) -> None:
    first = program.run_scripted("text: one\n", "-e", "first")
    assert first.returncode == 0
    (path,) = (program.home / SESSIONS).glob("*.jsonl")
    os.utime(path, (time.time() + shift, time.time() + shift))
    again = program.run_scripted("text: two\n", "--continue", "-e", "second")
    assert again.returncode == 0, again.stderr
    listed = program.run("sessions", "list")
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == 1
    check_home(program.home)


def test_two_at_once_on_one_session(program: Program) -> None:
    assert program.run_scripted("text: one\n", "-e", "first").returncode == 0
    (path,) = (program.home / SESSIONS).glob("*.jsonl")
    holder = program.start_scripted("text: one\n", "--json", "--continue")
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        holder.stdin.write('{"type": "user", "content": "hold"}\n')
        holder.stdin.flush()
        while '"end_turn"' not in holder.stdout.readline():
            pass
        second = program.run_scripted("text: two\n", "--resume", path.stem, "-e", "mine")
        assert second.returncode == 1
        assert second.stderr.strip().endswith("--branch` goes on with a copy of it.")
        holder.stdin.close()
        holder.wait(PATIENCE)
    assert program.run_scripted("text: two\n", "--resume", path.stem, "-e", "mine").returncode == 0
    check_home(program.home)


def test_a_model_that_another_one_replaces_answers_to_its_end(
    program: Program, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(builtin_model(), model)
    greedy: dict[str, object] = {"temperature": 0, "max_tokens": 30}
    with serving(program, "--model", str(model)) as (_, url):
        before = chat(url, "hello", **greedy)
        other = tiny.write_llama(tmp_path / "other.gguf", context=2048)
        other.replace(model)
        after = chat(url, "hello", **greedy)
        assert before["status"] == after["status"] == 200
        assert before["choices"] == after["choices"]


@pytest.mark.parametrize("change", ["overwritten", "cut"])
def test_a_model_that_is_written_to_answers_with_an_error(
    program: Program, tmp_path: Path, change: str
) -> None:
    """Other weights would answer something, and what is cut off would end the process."""
    model = tmp_path / "model.gguf"
    shutil.copy(builtin_model(), model)
    with serving(program, "--model", str(model)) as (process, url):
        assert chat(url, "hello", max_tokens=5)["status"] == 200
        with model.open("r+b") as file:
            if change == "cut":
                file.truncate(1 << 20)
            else:
                file.seek(1 << 20)
                file.write(bytes(1 << 20))
        answer = chat(url, "what can you do?", max_tokens=5)
        assert answer["status"] == 503
        assert "was changed while it was in use" in str(answer["error"])
        assert process.poll() is None


def test_weights_of_the_same_size_and_date_are_told_apart(tmp_path: Path) -> None:
    """What one of them left in the cache is never taken for the other's."""
    path = tmp_path / "model.gguf"
    shutil.copy(builtin_model(), path)
    params = bindings().llama_context_default_params()
    before, status = fingerprint(path, params), path.stat()
    with path.open("r+b") as file:
        file.seek(status.st_size // 2)
        file.write(bytes(status.st_size // 4))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = fingerprint(path, params)
    assert (after.place, after.context) == (before.place, before.context)
    assert after.digest != before.digest
    assert after.is_outdated(f"{before.prefix}0.state")
