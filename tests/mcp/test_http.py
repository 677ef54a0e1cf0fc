"""Servers that speak HTTP, and logins with OAuth at a small authorization server."""

import asyncio
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.config.secrets import Secrets
from shepherd.errors import ConfigError
from shepherd.mcp.login import TOKENS, Login
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import ServerState, ServerStore
from tests.mcp.harness import open_office, paths_below, server, until


class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Lets everybody in who asks, with tokens of its own."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}
        self.renewed = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id or ""] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = secrets.token_hex(20)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 600,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        scopes = authorization_code.scopes or ["use"]
        return self._issue(client.client_id or "", authorization_code.resource, scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.renewed += 1
        return self._issue(client.client_id or "", refresh_token.resource, refresh_token.scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.clear()

    def _issue(self, client: str, resource: str | None, scopes: list[str]) -> OAuthToken:
        token, renewal = secrets.token_hex(20), secrets.token_hex(20)
        self.tokens[token] = AccessToken(
            token=token, client_id=client, scopes=scopes, resource=resource
        )
        self.renewals[renewal] = RefreshToken(
            token=renewal, client_id=client, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=token, refresh_token=renewal, expires_in=3600, scope=" ".join(scopes)
        )


class Narrow:
    """Lets only tokens with the scope `wide` call tools."""

    def __init__(self, app: ASGIApp, authority: Authority) -> None:
        self.app, self.authority = app, authority

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        token = self.authority.tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        app = self.app
        if token and "wide" not in token.scopes and headers.get("mcp-method") == "tools/call":
            problem = 'Bearer error="insufficient_scope", scope="wide"'
            app = Response(status_code=403, headers={"WWW-Authenticate": problem})
        await app(scope, receive, send)


class Known(OAuthClientInformationFull):
    """A client that an administrator has registered, for any port of this machine."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        assert redirect_uri is not None
        return redirect_uri


@asynccontextmanager
async def serving(
    authority: Authority | None, *, sse: bool = False, narrow: bool = False
) -> AsyncGenerator[str]:
    """The URL of a server with the tool `hello`; with an authority, it needs a login."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(f"{base}/mcp"),
            required_scopes=["use"],
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["use", "wide"], default_scopes=["use", "wide"]
            ),
        )
        mcp = MCPServer("locked", auth_server_provider=authority, auth=auth if authority else None)
        mcp.add_tool(lambda: "hello", name="hello", description="Say hello.")
        app = mcp.sse_app() if sse else mcp.streamable_http_app()
        served = Narrow(app, authority) if narrow and authority else app
        config = uvicorn.Config(
            served, log_level="error", lifespan="on", timeout_graceful_shutdown=1
        )
        web = uvicorn.Server(config)
        task = asyncio.create_task(web.serve([listener]))
        await until(lambda: web.started)
        try:
            yield f"{base}/sse" if sse else f"{base}/mcp"
        finally:
            web.should_exit = True
            await task


async def test_tools_over_http(tmp_path: Path) -> None:
    async with serving(None) as url, open_office(tmp_path, [server("web", url=url)]) as office:
        assert (await office.call("web__hello")).content == "hello"


@pytest.mark.parametrize("kind", ["sse", ""])
async def test_servers_of_the_older_transport(tmp_path: Path, kind: str) -> None:
    async with (
        serving(None, sse=True) as url,
        open_office(tmp_path, [server("web", url=url, type=kind)]) as office,
    ):
        assert (await office.call("web__hello")).content == "hello"
        assert office.notices == []


async def test_an_address_without_a_server_is_no_older_server(tmp_path: Path) -> None:
    async with serving(None) as url:
        other = server("web", url=f"{url}/other", start_timeout=5)
        async with open_office(tmp_path, [other]) as office:
            assert "404" in office.notices[0]


def test_the_type_of_other_programs_is_understood(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    servers = {
        "old": {"type": "sse", "url": "https://a.test/sse"},
        "new": {"type": "http", "url": "https://a.test/mcp"},
        "own": {"type": "stdio", "command": "x"},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    assert [one.definition.type for one in ServerStore(file).all()] == ["sse", "", ""]
    with pytest.raises(ConfigError, match="belong to a url"):
        server("own", command="x", type="sse")


@dataclass
class Browser:
    """Follows every redirect."""

    addresses: list[httpx.URL] = field(default_factory=list[httpx.URL])
    visits: list[asyncio.Task[httpx.Response]] = field(
        default_factory=list[asyncio.Task[httpx.Response]]
    )

    def open(self, address: str) -> None:
        self.addresses.append(httpx.URL(address))
        self.visits.append(asyncio.create_task(self._browse(address)))

    async def _browse(self, address: str) -> httpx.Response:
        async with httpx.AsyncClient(follow_redirects=True) as browser:
            return await browser.get(address)


async def test_a_call_that_needs_more_asks_for_a_wider_login(tmp_path: Path) -> None:
    authority, paths, browser = Authority(), paths_below(tmp_path), Browser()
    keys = ServerSecrets(Secrets(paths.credentials_file, {}), {})
    async with serving(authority, narrow=True) as url:
        definition = server("web", url=url)
        await Login(definition, keys).run(browser.open)
        async with open_office(tmp_path, [definition]) as office:
            refused = await office.call("web__hello")
            assert "it needs a login: `shepherd mcp login web`" in refused.content
        await Login(definition, keys).run(browser.open)
        async with open_office(tmp_path, [definition]) as office:
            assert (await office.call("web__hello")).content == "hello"
    assert [address.params["scope"] for address in browser.addresses] == ["use", "use wide"]


async def test_the_client_of_the_settings_proves_itself_by_its_secret(tmp_path: Path) -> None:
    authority, paths, browser = Authority(), paths_below(tmp_path), Browser()
    authority.clients["me"] = Known(
        client_id="me",
        client_secret="hidden",
        redirect_uris=[AnyUrl("http://127.0.0.1/callback")],
        token_endpoint_auth_method="client_secret_basic",
        scope="use wide",
    )
    keys = ServerSecrets(Secrets(paths.credentials_file, {}), {"HIDDEN": "hidden", "WRONG": "x"})
    async with serving(authority) as url:
        for name in ("WRONG", "HIDDEN"):
            secret = f"${{{name}}}"
            login = Login(server("web", url=url, client_id="me", client_secret=secret), keys)
            if name == "WRONG":
                with pytest.raises(ConfigError, match="login failed"):
                    await login.run(browser.open)
            else:
                assert await login.run(browser.open) == 1
    assert [*authority.clients] == ["me"]
    with pytest.raises(ConfigError, match="must not be in the settings"):
        server("web", url=url, client_id="me", client_secret="hidden")


async def test_a_document_names_the_client_where_the_authority_reads_it(tmp_path: Path) -> None:
    keys = ServerSecrets(Secrets(paths_below(tmp_path).credentials_file, {}), {})
    document = "https://example.com/client.json"
    login = Login(server("web", url="https://a.example", client_id=document), keys)
    assert await login.store.get_client_info() is None
    assert (await login.provider()).context.client_metadata_url == document


def test_lines_of_the_sdk_are_not_shown() -> None:
    code = """import logging, shepherd.mcp.login
for name in ("mcp.client.auth", "client"):
    logging.getLogger(name).warning("dropping a tool")"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


async def test_a_login_is_kept_and_used(tmp_path: Path) -> None:
    authority, paths = Authority(), paths_below(tmp_path)
    async with serving(authority) as url:
        definition = server("web", url=url)
        async with open_office(tmp_path, [definition]) as office:
            assert office.entry("web").state is ServerState.FAILED
            assert "it needs a login: `shepherd mcp login web`" in office.notices[0]

        keys, browser = ServerSecrets(Secrets(paths.credentials_file, {}), {}), Browser()
        assert await Login(definition, keys).run(browser.open) == 1
        assert "You are logged in" in (await browser.visits[0]).text
        assert paths.credentials_file.stat().st_mode & 0o777 == 0o600
        async with open_office(tmp_path, [definition]) as office:
            assert (await office.call("web__hello")).content == "hello"
            assert office.notices == []
        access = await Login(definition, keys).store.access()
        assert access is not None
        expired = access.model_copy(update={"expires_at": 1.0}).model_dump_json(exclude_none=True)
        keys.save("web", TOKENS, expired, "file")
        authority.tokens.clear()
        async with open_office(tmp_path, [definition]) as office:
            assert (await office.call("web__hello")).content == "hello"
        assert authority.renewed == 1
        login = Login(definition, keys)
        login.store.forget()
        assert await login.store.get_tokens() is None


@pytest.mark.parametrize(
    "url", ["http://example.com/mcp", "ftp://example.com", "https://user:pass@example.com/mcp"]
)
def test_tokens_go_to_safe_addresses_only(url: str) -> None:
    with pytest.raises(ConfigError):
        server("web", url=url)
