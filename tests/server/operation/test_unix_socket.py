"""The Unix socket: who can open it, which one is replaced, and what serves behind it."""

import socket
import stat
from pathlib import Path

import httpx
import pytest

from shepherd.errors import ConfigError
from shepherd.server.access.keys import KeyStore
from shepherd.server.listen import bound_sockets, unix_socket
from shepherd.server.run import serve
from shepherd.server.settings import ServerSettings
from tests.cli.program import Program
from tests.patience import PATIENCE

SCRIPT = "text: hello"
BODY = {"messages": [{"role": "user", "content": "hi"}]}


def client(path: Path, **headers: str) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(path))
    return httpx.Client(
        base_url="http://shepherd", transport=transport, headers=headers, timeout=PATIENCE
    )


def test_only_the_user_can_open_it_and_it_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with unix_socket(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_stale_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ended:
        ended.bind(str(path))
    assert path.exists()
    with unix_socket(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.connect(str(path))


def test_that_of_a_server_that_runs_or_starts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with unix_socket(path):
        for _ in range(2):
            with pytest.raises(ConfigError, match="Another program uses"), unix_socket(path):
                pass
            assert path.exists()
    with unix_socket(path):
        assert path.exists()


def test_that_of_another_program_is_refused_also_if_its_queue_is_full(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen(0)
        for _ in range(3):
            with pytest.raises(ConfigError, match="Another program"), unix_socket(path):
                pass
    assert path.exists()


def test_other_files_and_bad_places_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "link").symlink_to(file)
    problems = {
        file: "is not a socket",
        tmp_path / "link": "is not a socket",
        tmp_path / "none" / "socket": "No such file",
        tmp_path / ("x" * 120): "path too long",
        tmp_path / ("x" * 300): "File name too long",
    }
    for path, problem in problems.items():
        with pytest.raises(ConfigError, match=problem), unix_socket(path):
            pass
    assert file.read_text() == "mine"


def test_a_socket_that_took_its_place_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with unix_socket(path):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


def test_the_descriptor_is_not_inherited(tmp_path: Path) -> None:
    with unix_socket(tmp_path / "socket") as sock:
        assert not sock.get_inheritable()


def test_tcp_is_only_opened_if_the_settings_say_so(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for tcp, families in ((False, [socket.AF_UNIX]), (True, [socket.AF_INET, socket.AF_UNIX])):
        settings = ServerSettings(port=0, tcp=tcp, socket=str(path))
        with bound_sockets(settings) as sockets:
            assert [sock.family for sock in sockets] == families


async def test_a_socket_in_use_is_reported_before_a_model_is_loaded(tmp_path: Path) -> None:
    async def open_backend() -> None:
        raise AssertionError("a model was loaded")

    path = tmp_path / "socket"
    with unix_socket(path), pytest.raises(ConfigError, match="Another program"):
        await serve(open_backend, ServerSettings(tcp=False, socket=str(path)))  # pyright: ignore[reportArgumentType] - never called


def test_the_program_serves_on_a_socket_with_keys(tmp_path: Path) -> None:
    program, path = Program(tmp_path, tmp_path), tmp_path / "socket"
    key = KeyStore(program.config / "keys.json").add("laptop")
    options = ("--server", "--auth-mode", "json", "--socket", str(path))
    with program.start_scripted(SCRIPT, *options) as process:
        assert process.stderr is not None
        line = next(text for text in process.stderr if "Serving" in text)
        assert line.rstrip().endswith(f" at {path}")
        with client(path) as visitor:
            assert visitor.get("/health").status_code == 200
            assert visitor.post("/v1/chat/completions", json=BODY).status_code == 401
        with client(path, Authorization=f"Bearer {key}") as visitor:
            answer = visitor.post("/v1/chat/completions", json=BODY)
            assert answer.json()["choices"][0]["message"]["content"] == "hello"
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not path.exists()


def test_without_keys_any_host_name_is_served_on_a_socket(tmp_path: Path) -> None:
    program, path = Program(tmp_path, tmp_path), tmp_path / "socket"
    options = ("--server", "--socket", str(path), "--port", "0")
    with program.start_scripted(SCRIPT, *options) as process:
        assert process.stderr is not None
        line = next(text for text in process.stderr if "Serving" in text)
        assert "http://127.0.0.1:" in line
        url = line.split()[-3].removesuffix("/v1")
        with client(path, Host="elsewhere.example") as visitor:
            assert visitor.get("/v1/models").status_code == 200
        refused = httpx.get(f"{url}/v1/models", headers={"Host": "elsewhere.example"})
        assert refused.status_code == 403
        process.terminate()
        process.communicate(timeout=PATIENCE)
