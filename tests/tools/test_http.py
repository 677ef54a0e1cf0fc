"""http_get and http_request against a real server on this machine."""

import asyncio
import contextlib
import gzip
import re
import shutil
import socket
import ssl
import subprocess
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.config.section import ApproveMode
from shepherd.errors import ToolError
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.web.urls import is_public, parse_url, resolve_host
from tests.patience import POLL
from tests.tools.workshop import Workshop, open_workshop


class Handler(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    left: threading.Event

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        type(self).seen.append((self.command, self.path, headers, body))
        path, _, query = self.path.partition("?")
        match path:
            case "/text":
                self._reply(
                    200, "grüße\n".encode("latin-1"), content_type="text/plain; charset=latin-1"
                )
            case "/big":
                self._reply(200, b"x" * 200_000, content_type="text/plain")
            case "/bomb":
                self._reply(200, gzip.compress(b"0" * 50_000_000), content_encoding="gzip")
            case "/binary":
                self._reply(200, b"\x89PNG\0\1", content_type="image/png")
            case "/redirect":
                self._reply(int(query.split(",")[0]), location=query.split(",")[1])
            case "/loop":
                self._reply(302, location="/loop")
            case "/cut" | "/drip" | "/says":
                self._write_raw(path, query)
            case _:
                self._plain(path)

    def _write_raw(self, path: str, query: str) -> None:
        self.close_connection = True
        head, _, body = unquote_to_bytes(query).partition(b"|")
        head = {"/cut": b"content-length: 50", "/drip": b"a: b"}.get(path, head)
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body)
        with contextlib.suppress(OSError):
            while path == "/drip" and not type(self).left.wait(0.05):
                self.wfile.write(b"x")

    def _plain(self, path: str) -> None:
        status, body = {"/empty": (204, b""), "/missing": (404, b"no such page")}.get(
            path, (200, b"ok")
        )
        self._reply(status, body, **({"content_type": "text/plain"} if body else {}))

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.seen = []
    Handler.left = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(POLL,))
    thread.start()
    yield server
    Handler.left.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def url(server: ThreadingHTTPServer) -> str:
    Handler.seen.clear()
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def web(tmp_path: Path) -> Workshop:
    return open_workshop(tmp_path, allow_private_hosts=True, output_bytes=1000)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/text", "HTTP 200 text/plain; charset=latin-1\n\ngrüße"),
        ("/empty", "HTTP 204"),
        ("/missing", "HTTP 404 text/plain\n\nno such page"),
        ("/binary", "HTTP 200 image/png\n\n(binary body, 6 bytes)"),
        ("/big", "HTTP 200 text/plain\n\n" + "x" * 1000 + "\n[body cut at 1000 bytes]"),
        ("/bomb", "HTTP 200\n\n" + "0" * 1000 + "\n[body cut at 1000 bytes]"),
        ("/redirect?302,/x", "HTTP 200 text/plain\n\nok"),
        ("/loop", "Error: too many redirects from 127.0.0.1"),
        ("/redirect?302,file:///etc/passwd",
         "Error: bad URL: file:/etc/passwd (http:// or https:// expected)"),
    ],
)  # fmt: skip
async def test_replies(web: Workshop, url: str, path: str, expected: str) -> None:
    assert await web.call("http_get", url=url + path) == expected


async def test_a_reply_cut_short_is_an_error(web: Workshop, url: str) -> None:
    assert (await web.call("http_get", url=url + "/cut")).startswith(
        "Error: cannot reach 127.0.0.1: "
    )


async def test_a_reply_that_never_comes_is_an_error(tmp_path: Path) -> None:
    """The kernel takes the connection and the request, which nobody ever reads."""
    hasty = open_workshop(tmp_path, allow_private_hosts=True, timeout=0.4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        late = await hasty.call("http_get", url=url)
    assert late in ("Error: timed out after 0.4 s", "Error: cannot reach 127.0.0.1: timed out")


async def test_nobody_listens(web: Workshop) -> None:
    text = await web.call("http_get", url="http://127.0.0.1:1/")
    assert text == "Error: cannot reach 127.0.0.1: connection refused"
    text = await web.call("http_get", url="http://no-such-host.invalid/")
    assert text == "Error: cannot reach no-such-host.invalid: name not known"


async def test_a_request_with_everything(web: Workshop, url: str) -> None:
    text = await web.call(
        "http_request", method="post", url=url + "/x?a=b", headers={"X-Y": "z"}, body={"k": [1]}
    )
    assert text == "HTTP 200 text/plain\n\nok"
    method, path, headers, body = Handler.seen[0]
    assert (method, path, body) == ("POST", "/x?a=b", b'{"k": [1]}')
    assert headers["x-y"] == "z"
    assert headers["content-type"] == "application/json"
    assert headers["host"] == url.removeprefix("http://")


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": "BREW"},
        {"headers": {"Host": "x"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"url": "ftp://x/"},
        {"url": "http://"},
        {"url": "http://user:pw@x/"},
        {"url": "x"},
    ],
)
async def test_bad_requests_are_not_sent(
    web: Workshop, url: str, arguments: dict[str, Any]
) -> None:
    text = await web.call("http_request", **({"method": "GET", "url": url} | arguments))
    assert text.startswith(("Error: bad arguments", "Error: bad URL"))
    assert Handler.seen == []


@pytest.mark.parametrize(("status", "method"), [(302, "GET"), (303, "GET"), (307, "POST")])
async def test_redirects_keep_to_the_method_rules(
    web: Workshop, url: str, status: int, method: str
) -> None:
    await web.call("http_request", method="POST", url=f"{url}/redirect?{status},/to", body="data")
    last = Handler.seen[-1]
    assert (last[0], last[1], last[3]) == (method, "/to", b"data" if method == "POST" else b"")


async def test_nothing_private_follows_to_another_host(web: Workshop, url: str) -> None:
    there = url.replace("127.0.0.1", "localhost") + "/to"
    headers = {"Authorization": "secret"}
    await web.call("http_request", method="GET", url=f"{url}/redirect?302,{there}", headers=headers)
    assert Handler.seen[-1][1] == "/to"
    assert "authorization" not in Handler.seen[-1][2]
    Handler.seen.clear()
    text = await web.call(
        "http_request", method="POST", url=f"{url}/redirect?307,{there}", body="secret"
    )
    assert text == f"HTTP 307\nLocation: {there}"
    assert [seen[1] for seen in Handler.seen] == [f"/redirect?307,{there}"]


async def test_each_hop_is_held_against_the_rules(tmp_path: Path, url: str) -> None:
    web = open_workshop(
        tmp_path, mode=ApproveMode.ALL, rules=["deny network localhost"], allow_private_hosts=True
    )
    there = url.replace("127.0.0.1", "localhost")
    assert (
        await web.call("http_get", url=there)
    ) == "Error: denied by rule: deny network localhost"
    text = await web.call("http_get", url=f"{url}/redirect?302,{there}/x")
    assert text == "Error: redirect to localhost not followed: denied by rule"
    assert len(Handler.seen) == 1


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1]", "0",
     "[::ffff:127.0.0.1]", "LOCALHOST.", "[::]", "169.254.169.254", "10.0.0.1", "192.168.1.1",
     "[fe80::1]", "[fd00::1]", "224.0.0.1", "255.255.255.255", "[::ffff:127.0.0.2]",
     "017700000001", "127.0.0.1.", "①②⑦.0.0.1", "127。0。0。1", "%31%32%37.0.0.1",
     "[fe80::1%25eth0]", "[0:0:0:0:0:ffff:7f00:2]", "x.localhost", "localhost..", "user@127.0.0.1",
     "[64:ff9b::7f00:1]", "192.0.0.8", "168.63.129.16", "0300.0250.1.1", "127.0.1",
     "loc\u00adalhost", "ⓛocalhost", "localhost.localdomain"],
)  # fmt: skip
async def test_private_hosts_are_refused_in_every_spelling_and_not_asked_for(
    tmp_path: Path, url: str, host: str
) -> None:
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.ONCE])
    port = url.rsplit(":", 1)[1]
    text = await shop.call("http_get", url=f"http://{host}:{port}/")
    assert text.startswith(("Error: private address refused: ", "Error: bad URL: "))
    assert shop.request_count == 0
    assert Handler.seen == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0x7f.0.1"])
def test_an_address_has_one_name_for_the_rules(host: str) -> None:
    assert parse_url(f"http://{host}/a#b") == "http://127.0.0.1/a"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1111", True), ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True), ("100.64.0.1", False), ("0.0.0.0", False), ("240.0.0.1", False),
        ("192.0.2.1", False), ("198.18.0.1", False), ("::ffff:10.0.0.1", False),
        ("::7f00:1", False),
        ("64:ff9b::a00:1", False), ("2002:7f00:1::", False), ("fec0::1", False), ("ff02::1", False),
        ("fe80::1", False), ("fc00::1", False), ("172.16.0.1", False), ("::", False),
        ("192.0.0.1", False), ("192.0.0.9", False), ("192.0.0.170", False),
        ("168.63.129.16", False), ("100.100.100.200", False), ("192.88.99.1", False),
        ("198.51.100.1", False), ("203.0.113.1", False), ("198.19.255.255", False),
        ("::ffff:127.0.0.2", False), ("::ffff:168.63.129.16", False), ("fd00:ec2::254", False),
        ("64:ff9b::a9fe:a9fe", False), ("64:ff9b:1::808:808", False), ("100::1", False),
        ("2001::1", False), ("2001:10::1", False), ("2001:20::1", False), ("2001:db8::1", False),
        ("2002:808:808::1", False), ("3fff::1", False), ("5f00::1", False), ("4000::1", False),
        ("::8.8.8.8", False), ("::ffff:0:8.8.8.8", False), ("2600::5efe:10.0.0.1", False),
        ("2600::200:5efe:8.8.8.8", False), ("1.1.1.1", True), ("223.255.255.255", True),
        ("2a00:1450::1", True), ("2620:fe::fe", True),
    ],
)  # fmt: skip
def test_what_is_public(address: str, *, public: bool) -> None:
    assert is_public(ip_address(address)) is public


async def test_a_name_is_judged_by_all_its_addresses() -> None:
    assert "127.0.0.1" in await resolve_host("localhost", 80, allow_private=True)
    with pytest.raises(ToolError, match="private address refused: localhost"):
        await resolve_host("localhost", 80, allow_private=False)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_the_certificate_must_be_for_the_name_and_not_for_the_address(
    web: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    await asyncio.to_thread(
        subprocess.run, ["openssl", *make, *names], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(POLL,))
    thread.start()
    try:
        url = f"https://localhost:{server.server_port}/"
        assert (await web.call("http_get", url=url)).startswith(
            "Error: cannot reach localhost: bad certificate"
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert await web.call("http_get", url=url) == "HTTP 200 text/plain\n\nok"
        assert Handler.seen[-1][2]["host"] == f"localhost:{server.server_port}"
        text = await web.call("http_get", url=url.replace("localhost", "127.0.0.1"))
        assert text.startswith(
            "Error: cannot reach 127.0.0.1: bad certificate: IP address mismatch"
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        (b"content-type: text/\x1b[31mred\x07", b"ok", "HTTP 200 text/"),
        ("content-type: a\u202eb".encode(), b"ok", "HTTP 200 a"),
        (b"content-type: " + b"x" * 5000, b"ok", "HTTP 200 " + "x" * 500 + "…\n\nok"),
        (b"content-type: text/plain; charset=idna", b"ok", "HTTP 200 text/plain; charset=idna"),
        (b"content-type: a; charset=undefined", b"ok", "HTTP 200 a; charset=undefined\n\nok"),
        (b"content-type: a; charset=unicode_escape", rb"\x41", "HTTP 200 a; charset=unicode_"),
        (b"content-type: a; charset=\xff", b"ok", "HTTP 200 a; charset="),
        (b"content-encoding: gzip", b"no gzip", "Error: cannot reach 127.0.0.1: broken gzip body"),
        (b"content-encoding: br", b"abc", "HTTP 200\n\n(body encoded as br, 3 bytes)"),
        (b"content-encoding: gzip, gzip", b"abc",
         "HTTP 200\n\n(body encoded as gzip, gzip, 3 bytes)"),
        (b"content-encoding: deflate", zlib.compress(b"fine"), "HTTP 200\n\nfine"),
        (b"a: b", b"\x1b]0;title\x07text\x1b[2J", "HTTP 200\n\ntext"),
    ],
)  # fmt: skip
async def test_what_a_server_says_is_plain_text(
    web: Workshop, url: str, head: bytes, body: bytes, expected: str
) -> None:
    text = await web.call("http_get", url=f"{url}/says?{quote_from_bytes(head + b'|' + body)}")
    assert text.startswith((expected, "Error: cannot reach 127.0.0.1: "))
    assert "failed: " not in text
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.startswith("Error") or text.splitlines()[0].removesuffix("…").isascii()


async def test_a_body_that_drips_has_one_deadline(tmp_path: Path, url: str) -> None:
    hasty = open_workshop(tmp_path, allow_private_hosts=True, timeout=0.5)
    assert await hasty.call("http_get", url=url + "/drip") == "Error: timed out after 0.5 s"


@given(st.text(st.sampled_from("aA0127.:/@\\#?[]%1xX-_。①\u200b ö"), max_size=24))
def test_rules_and_connections_see_the_same_host(text: str) -> None:
    try:
        url = parse_url(f"http://{text}")
    except ToolError:
        return
    assert urlsplit(str(url)).hostname == url.raw_host.decode()
    assert parse_url(str(url)) == url
    assert re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:]+", url.raw_host.decode())
