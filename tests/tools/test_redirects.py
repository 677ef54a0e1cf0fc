"""Redirects: each hop is an access of its own, and nothing private goes along."""

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shepherd.config.section import ApproveMode
from shepherd.errors import ToolError
from shepherd.tools.access import Access
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice, DenyingApprover
from shepherd.tools.tool import ToolContext
from shepherd.tools.web.http import Body, Reply, Request, following, permit
from tests.approvers import ScriptedApprover
from tests.patience import PATIENCE, POLL
from tests.tools.workshop import Workshop, open_workshop


class Redirecting(BaseHTTPRequestHandler):
    """`/STATUS/URL` redirects to the URL; everything else is a page."""

    seen: list[tuple[str, str, dict[str, str]]]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        type(self).seen.append((self.command, self.path, headers))
        status, _, target = self.path[1:].partition("/")
        if status.isdigit():
            self.send_response(int(status))
            self.send_header("location", target)
            self.send_header("set-cookie", "session=1")
        else:
            self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = do_HEAD = _answer  # noqa: N815


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Generator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(POLL,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    Redirecting.seen = []
    with serving() as port:
        yield port


def web(base: Path, *answers: Choice, rules: tuple[str, ...] = (), **options: Any) -> Workshop:
    options |= {"allow_private_hosts": True}
    return open_workshop(base, mode=ApproveMode.ASK, rules=rules, answers=answers, **options)


async def test_another_host_is_asked_for(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, Choice.ONCE, Choice.ONCE)
    there = f"http://localhost:{port}/to"
    text = await shop.call("http_get", url=f"http://127.0.0.1:{port}/302/{there}")
    assert text == "HTTP 200"
    first, second = shop.approver.requests
    assert [access.target for access in first.accesses] == [f"http://127.0.0.1:{port}/302/{there}"]
    assert [access.target for access in second.accesses] == [there]
    assert second.preview == f"GET {there}\n(redirected from http://127.0.0.1:{port}/302/{there})"
    assert [rule.pattern for rule in second.always] == [f"localhost:{port}"]


async def test_a_host_that_is_refused_is_not_fetched(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, Choice.ONCE, Choice.DENY)
    url = f"http://127.0.0.1:{port}/302/http://localhost:{port}/to"
    text = await shop.call("http_get", url=url)
    assert text == "Error: redirect to localhost not followed: denied by the user"
    assert len(Redirecting.seen) == 1


async def test_without_anybody_to_ask_it_ends_at_the_redirect(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, rules=("allow network 127.0.0.1",))
    shop.runner.approver = DenyingApprover()
    text = await shop.call("http_get", url=f"http://127.0.0.1:{port}/302/http://localhost:{port}/")
    assert text == (
        "Error: redirect to localhost not followed: denied: approval needed and no terminal to ask"
    )
    assert len(Redirecting.seen) == 1


async def test_the_same_origin_needs_no_second_word(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, Choice.ONCE)
    assert await shop.call("http_get", url=f"http://127.0.0.1:{port}/302//to") == "HTTP 200"
    assert shop.request_count == 1


async def test_sending_something_elsewhere_on_the_host_is_asked_for(
    tmp_path: Path, port: int
) -> None:
    shop = web(tmp_path, Choice.ONCE, Choice.DENY)
    text = await shop.call(
        "http_request", method="POST", url=f"http://127.0.0.1:{port}/307//to", body="x"
    )
    assert text == "Error: redirect to 127.0.0.1 not followed: denied by the user"
    assert len(Redirecting.seen) == 1


async def test_a_rule_given_for_a_hop_holds(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, Choice.ONCE, Choice.SESSION)
    await shop.call("http_get", url=f"http://127.0.0.1:{port}/302/http://localhost:{port}/")
    assert await shop.call("http_get", url=f"http://localhost:{port}/") == "HTTP 200"
    assert shop.request_count == 2


@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/", "http://[::1]/", "http://2130706433/", "http://x.localhost/"]
)
async def test_a_hop_that_is_refused_anyway_is_not_asked_for(tmp_path: Path, target: str) -> None:
    questions: list[str] = []

    async def authorize(access: Access, preview: str) -> bool:
        questions.append(f"{access.target}: {preview}")
        return True

    context = ToolContext(tmp_path, tmp_path / "spill", authorize=authorize)
    with pytest.raises(ToolError, match="not followed: private address refused: "):
        await permit(Request("GET", target), "http://public.example/", context)
    assert not questions
    await permit(Request("GET", "http://93.184.215.14/"), "http://public.example/", context)
    assert len(questions) == 1


class ForwardLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward, by seconds."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_the_time_in_which_the_user_thinks_does_not_count(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, rules=("allow network 127.0.0.1",), timeout=PATIENCE)
    loop = ForwardLoop()

    class Slow(ScriptedApprover):
        """Thinks for longer than the tool may take."""

        async def ask(self, request: ApprovalRequest) -> Approval:
            loop.ahead = 2 * PATIENCE
            await asyncio.sleep(0.01)
            return Approval(Choice.ONCE)

    shop.runner.approver = Slow()
    url = f"http://127.0.0.1:{port}/302/http://localhost:{port}/"
    with asyncio.Runner(loop_factory=lambda: loop) as running:
        assert running.run(shop.call("http_get", url=url)) == "HTTP 200"


async def test_no_cookie_is_kept_from_hop_to_hop(tmp_path: Path, port: int) -> None:
    shop = web(tmp_path, Choice.ONCE, Choice.ONCE)
    await shop.call("http_get", url=f"http://127.0.0.1:{port}/302/http://localhost:{port}/")
    assert "cookie" not in Redirecting.seen[1][2]


def redirect(request: Request, status: int, location: str) -> Request | None:
    return following(request, Reply(status, "", None, location, Body(b"")))


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("https://a.example/", "http://a.example/"),
        ("https://a.example/", "http://a.example:443/"),
        ("http://a.example/", "https://a.example/"),
        ("https://a.example/", "https://a.example:8443/"),
        ("https://a.example/", "https://b.example/"),
        ("https://a.example/", "https://a.example.b.example/"),
        ("https://a.example/", "//b.example/"),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_credentials_and_bodies_stay_with_their_origin(here: str, there: str, status: int) -> None:
    secret = {"authorization": "x", "cookie": "y", "x-api-key": "z"}
    for request in (
        Request("GET", here, secret),
        Request("POST", here, secret, b"body"),
        Request("GET", here, {}, b"body"),
    ):
        hop = redirect(request, status, there)
        if hop is not None:
            assert (hop.headers, hop.body) == ({}, b"")
            assert hop.method == "GET"
        if here.startswith("https:") and there.startswith("http:"):
            assert hop is None


def test_from_https_to_http_a_bare_page_may_follow() -> None:
    hop = redirect(Request("GET", "https://a.example/"), 302, "http://a.example/")
    assert hop == Request("GET", "http://a.example/")


def test_a_body_that_is_left_behind_takes_its_headers_along() -> None:
    request = Request("POST", "https://a.example/", {"content-type": "x", "x-y": "z"}, b"body")
    hop = redirect(request, 303, "/done")
    assert hop == Request("GET", "https://a.example/done", {"x-y": "z"})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_a_connection_serves_only_the_name_whose_certificate_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    await asyncio.to_thread(
        subprocess.run, ["openssl", *make, *names], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    Redirecting.seen = []
    shop = web(tmp_path, rules=("allow network *",))
    with serving(context) as port:
        url = f"https://localhost:{port}/302/https://127.0.0.1:{port}/to"
        text = await shop.call("http_get", url=url)
    assert text.startswith("Error: cannot reach 127.0.0.1: bad certificate: IP address mismatch")
    assert len(Redirecting.seen) == 1
