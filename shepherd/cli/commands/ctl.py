"""`shepherd ctl`: steers a running server."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from shepherd import errors, json_text
from shepherd.backends.base import UpstreamState
from shepherd.cli.commands.arguments import Json, with_option_groups
from shepherd.cli.terminal.secrets import STDIN, read_key
from shepherd.config.load import load_config

if TYPE_CHECKING:
    import httpx

ctl = typer.Typer(name="ctl", help="Steer a running `shepherd --server`.", no_args_is_help=True)

KEY_VARIABLE = "SHEPHERD_ADMIN_KEY"
_KEY_ADVICE = f"Give a key with the scope admin: --api-key KEY, or {KEY_VARIABLE}."
_TIMEOUT = 120.0
_POLL_SECONDS = 0.2


class ServerAddress(Struct, frozen=True, kw_only=True):
    """Where the server is; by default the socket, or the host and port, of the settings."""

    socket: Path | None = None
    """Its Unix socket."""
    url: Annotated[str | None, typer.Option(metavar="URL")] = None
    """Its address."""
    api_key: Annotated[str | None, typer.Option(metavar="KEY")] = None
    """A key with the scope admin, for an address; - asks for it or reads stdin. Also in
    SHEPHERD_ADMIN_KEY.
    """

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The server's answer; raises BackendError for a refusal, and UnreachableError."""
        import httpx

        socket, url = self._place()
        name = url if socket is None else str(socket)
        with self._client(socket, url) as client:
            try:
                response = client.request(method, f"/admin/{path}", json=body)
                answer: dict[str, Any] = response.json()
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                reason = f"{error}".rstrip(".")
                advice = "Is it running, and is the address right?"
                message = f"The server at {name} can't be reached: {reason}. {advice}"
                raise errors.UnreachableError(message) from error
            except ValueError as error:
                message = f"{name} is not a server of Shepherd."
                raise errors.BackendError(message) from error
        if response.is_success:
            return answer
        message = str(json_text.as_object(answer.get("error")).get("message", ""))
        message = message or f"The server refused: {response.status_code}"
        if response.status_code in (401, 403):
            raise errors.AccessError(f"{message} {_KEY_ADVICE}")
        raise errors.BackendError(message)

    def _client(self, socket: Path | None, url: str) -> "httpx.Client":
        """A client of the socket, which needs no key, or of the address."""
        import httpx

        if socket is not None:
            transport = httpx.HTTPTransport(uds=str(socket))
            return httpx.Client(base_url="http://localhost", transport=transport, timeout=_TIMEOUT)
        key = read_key("Key: ") if self.api_key == STDIN else self.api_key
        key = key or os.environ.get(KEY_VARIABLE, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT)

    def _place(self) -> tuple[Path | None, str]:
        """The socket, or None and the address."""
        if self.socket is not None or self.url is not None:
            url = (self.url or "").rstrip("/")
            return self.socket, url.removesuffix("/v1")  # which clients of OpenAI's API need
        section = load_config(Path.cwd(), os.environ).server
        if section.socket:
            return Path(section.socket).expanduser(), ""
        return None, section.url(section.port, encrypted=bool(section.tls_cert))


@ctl.command("status")
@with_option_groups
def show_status(address: ServerAddress, as_json: Json = False) -> None:
    """Show the state of the server: its models, requests and connections."""
    status = address.call("GET", "status")
    if as_json:
        typer.echo(json.dumps(status, indent=2))
        return
    requests = status["requests"]
    rows = [
        ("status", status["status"]),
        ("version", status["version"]),
        ("process", status["pid"]),
        ("uptime", f"{status['uptime_seconds']:.0f} s"),
        ("addresses", ", ".join(status["addresses"])),
        ("requests", f"{requests['running']} running, {requests['ended']} ended"),
        ("connections", status["connections"]),
    ]
    for model in status["models"]:
        rows.append(("model", _model_line(model)))
        upstreams = [UpstreamState(**state) for state in model.get("upstreams", ())]
        rows += [("upstream", state.describe()) for state in upstreams]
    for name, value in rows:
        typer.echo(f"{name:<12} {value}")


@ctl.command("drain")
@with_option_groups
def drain(
    address: ServerAddress,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing runs.")] = False,
    as_json: Json = False,
) -> None:
    """Refuse new requests with 503; those that run go on."""
    answer = address.call("POST", "drain")
    while wait and answer["running"]:
        time.sleep(_POLL_SECONDS)
        answer = address.call("POST", "drain")
    _show(answer, f"The server takes no new requests; {answer['running']} run.", as_json=as_json)


@ctl.command("reload")
@with_option_groups
def reload(address: ServerAddress, as_json: Json = False) -> None:
    """Have the server read its settings, keys and aliases again."""
    answer = address.call("POST", "reload")
    lines = [f"Changed: {', '.join(answer['changed']) or 'nothing'}."]
    if answer["need_restart"]:
        lines.append(f"These changes need a restart: {', '.join(answer['need_restart'])}.")
    _show(answer, "\n".join(lines), as_json=as_json)


@ctl.command("shutdown")
@with_option_groups
def shut_down(
    address: ServerAddress,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Wait for running requests; else the time of the settings."),
    ] = None,
    as_json: Json = False,
) -> None:
    """End the server after the requests that run."""
    answer = address.call("POST", "shutdown", {"seconds": seconds})
    _show(answer, f"The server ends; {answer['running']} requests run.", as_json=as_json)


def _show(answer: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the server's answer as JSON, or in words."""
    typer.echo(json.dumps(answer) if as_json else text)


def _model_line(model: Mapping[str, Any]) -> str:
    """`pup (8192 tokens, 310 MiB, 0 waiting)`."""
    total = model["memory_bytes"] + model["vram_bytes"]
    memory = f", {total / 2**20:.0f} MiB" if total else ""
    return f"{model['name']} ({model['context_size']} tokens{memory}, {model['waiting']} waiting)"
