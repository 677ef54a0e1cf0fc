"""Encryption: which certificates are refused, and how encrypted connections are served."""

import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import ConfigError
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls, TlsFiles
from tests.cli.program import Program
from tests.patience import PATIENCE
from tests.server.harness import HI, RunningServer, Scripted
from tests.server.operation.certificates import Authority

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.certify(authority.file.parent)


@pytest.fixture(scope="module")
def server(files: TlsFiles) -> Iterator[Scripted]:
    with serving(ServerSettings(port=0, tls=files)) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(files: TlsFiles) -> Iterator[Scripted]:
    """A server that waits only half a second, for tests that wait for its end."""
    settings = ServerSettings.model_construct(
        port=0, tls=files, read_timeout=0.5, max_connections=10
    )
    with serving(settings) as running:
        yield running


def serving(settings: ServerSettings) -> Scripted:
    return RunningServer(ScriptedBackend(parse_script("text: hello")), settings)


@pytest.fixture(scope="module")
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def encrypted(server: Scripted, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(server.connect(), server_hostname="localhost")


def read_to_end(sock: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := sock.recv(65_536):
            received += chunk
    except OSError:
        pass
    return received


def empty(files: TlsFiles) -> TlsFiles:
    files.certificate.write_bytes(b"")
    return files


def broken(files: TlsFiles) -> TlsFiles:
    files.certificate.write_text(files.certificate.read_text().replace("A", "B"))
    return files


def missing(files: TlsFiles) -> TlsFiles:
    return replace(files, certificate=Path("/nowhere/server.pem"))


def a_folder(files: TlsFiles) -> TlsFiles:
    return replace(files, certificate=files.certificate.parent)


def a_pipe(files: TlsFiles) -> TlsFiles:
    pipe = files.certificate.with_name("pipe")
    os.mkfifo(pipe)
    return replace(files, certificate=pipe)


def missing_key(files: TlsFiles) -> TlsFiles:
    return replace(files, key=Path("/nowhere/server.key"))


def open_key(files: TlsFiles) -> TlsFiles:
    files.key_file.chmod(0o644)
    return files


def broken_key(files: TlsFiles) -> TlsFiles:
    files.key_file.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    return files


def no_key(files: TlsFiles) -> TlsFiles:
    files.certificate.chmod(0o600)
    return replace(files, key=None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (empty, "is empty"),
        (broken, "is not a valid PEM file"),
        (missing, "can't be read: No such file"),
        (a_folder, "can't be read: Is a directory"),
        (a_pipe, "is not a file"),
        (missing_key, "can't be read: No such file"),
        (open_key, "is open to all users; run: chmod"),
        (broken_key, "is not a valid PEM file with a private key"),
        (no_key, "is not a valid PEM file with a private key"),
    ],
)
def test_a_certificate_that_can_not_be_used_is_refused(
    authority: Authority, tmp_path: Path, change: Callable[[TlsFiles], TlsFiles], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerTls(change(authority.certify(tmp_path)))
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_key_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.certify(tmp_path, "one"), authority.certify(tmp_path, "other")
    with pytest.raises(ConfigError, match="does not belong to the certificate"):
        ServerTls(replace(one, key=other.key))


def test_an_expired_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    expired = authority.certify(tmp_path, lifetime=-timedelta(hours=1))
    with pytest.raises(ConfigError, match="certificate has expired"):
        ServerTls(expired)


def test_the_password_of_a_key_comes_from_a_private_file(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.certify(tmp_path, password=b"secret")
    with pytest.raises(ConfigError, match=r"encrypted; set server\.tls_password_file"):
        ServerTls(files)
    password = tmp_path / "password"
    password.touch(0o600)
    files = replace(files, password=password)
    for wrong in ("", "wrong", "x" * 1024):
        password.write_text(wrong)
        with pytest.raises(ConfigError, match="is not that of the TLS key"):
            ServerTls(files)
    password.write_text("secret\n")
    ServerTls(files)
    password.chmod(0o604)
    with pytest.raises(ConfigError, match="open to all users"):
        ServerTls(files)


def test_a_broken_certificate_stops_the_start_with_one_sentence(
    authority: Authority, tmp_path: Path
) -> None:
    program = Program(tmp_path, tmp_path)
    files = authority.certify(tmp_path, lifetime=-timedelta(hours=1))
    flags = ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    ended = program.run("--server", "--port", "0", *flags)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"shepherd: The TLS certificate {files.certificate} is not usable: "
        "certificate has expired.\n"
    )
    ended = program.run("--server", "--tls-key", str(files.key))
    assert (ended.returncode, ended.stderr) == (
        1,
        "shepherd: server.tls_key is set without server.tls_cert; set both.\n",
    )


def test_requests_are_served_over_tls(server: Scripted, trusting: ssl.SSLContext) -> None:
    with httpx.Client(base_url=server.url, verify=trusting, timeout=PATIENCE) as client:
        body = {"messages": HI, "stream": True}
        answer = client.post("/v1/chat/completions", json=body)
        assert "hello" in answer.text
        assert client.get("/health").status_code == 200
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/health", timeout=PATIENCE)


def test_old_versions_of_tls_are_refused(server: Scripted, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with server.connect() as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname="localhost")


def test_a_request_without_encryption_gets_no_answer(server: Scripted) -> None:
    assert b"HTTP/1.1 200" not in server.raw(HEALTH + b"\r\n")


def test_an_error_before_the_application_arrives_whole(
    server: Scripted, trusting: ssl.SSLContext
) -> None:
    with encrypted(server, trusting) as sock:
        sock.sendall(HEALTH + b"X: y\r\n" * 200 + b"\r\n")
        head, _, body = read_to_end(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["error"]["code"] == "headers_too_large"


def is_healthy(server: Scripted, trusting: ssl.SSLContext) -> bool:
    """Whether the server answers; a request of a busy machine may be too slow for it."""
    for _ in range(20):
        with suppress(httpx.TransportError):
            answer = httpx.get(f"{server.url}/health", verify=trusting, timeout=PATIENCE)
            if answer.status_code == 200:
                return True
    return False


def test_handshakes_that_never_end_are_closed_and_count_as_connections(
    impatient: Scripted, trusting: ssl.SSLContext
) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(impatient.connect()) for _ in range(30)]
        silent[0].sendall(b"\x16\x03\x01")
        assert is_healthy(impatient, trusting)
        for sock in silent:
            assert read_to_end(sock) == b""
    assert is_healthy(impatient, trusting)


def test_a_half_request_over_tls_is_not_waited_for(
    files: TlsFiles, trusting: ssl.SSLContext
) -> None:
    settings = ServerSettings(port=0, tls=files, read_timeout=1)
    with serving(settings) as server, encrypted(server, trusting) as sock:
        sock.sendall(HEALTH)
        assert read_to_end(sock).startswith(b"HTTP/1.1 408 ")


def test_a_replaced_certificate_serves_new_connections(
    authority: Authority, tmp_path: Path, trusting: ssl.SSLContext
) -> None:
    tls = ServerTls(authority.certify(tmp_path, "first"))
    with pytest.raises(ConfigError):
        tls.replace(broken_key(authority.certify(tmp_path, "second")))
    assert subject(tls.context, trusting) == "first"
    tls.replace(authority.certify(tmp_path, "second"))
    assert subject(tls.context, trusting) == "second"


def subject(context: ssl.SSLContext, trusting: ssl.SSLContext) -> object:
    """The name in the certificate that a client gets."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there, server_hostname="localhost")
    server = context.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate: Any = client.getpeercert()
    return dict(part[0] for part in certificate["subject"])["commonName"]


def test_another_shepherd_behind_tls_is_a_provider(
    server: Scripted, authority: Authority, tmp_path: Path
) -> None:
    question = ("--backend", "openai", "--api-base", f"{server.url}/v1", "--model", "m")
    program = Program(tmp_path, tmp_path, {"SSL_CERT_FILE": str(authority.file)})
    ended = program.run(*question, "-e", "hi")
    assert (ended.returncode, ended.stdout.strip()) == (0, "hello"), ended.stderr
    ended = Program(tmp_path, tmp_path).run(*question, "-e", "hi")
    assert ended.returncode == 1
    assert "certificate" in ended.stderr.lower()
