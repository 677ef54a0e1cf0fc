"""OAuth: tokens kept apart from the settings, and a login in the user's browser."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import is_valid_client_metadata_url, union_scopes
from mcp.client.streamable_http import streamable_http_client
from mcp.shared import auth
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl, BaseModel, Field, ValidationError

from shepherd.errors import ConfigError
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Server
from shepherd.tasks import first_error

TOKENS, CLIENT = "oauth-tokens", "oauth-client"
"""The names under which a login is kept among the secrets of a server."""
LOGIN_SECONDS = 300.0
"""The time to log in."""

# without any handler, Python would write the SDK's warnings into the terminal
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_UNUSED = "http://127.0.0.1:1/callback"
_PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"You are logged in. Close this page and go back to Shepherd.\n"
)
_MAX_REQUEST = 16_384
M = TypeVar("M", bound=BaseModel)


class Access(BaseModel):
    """Tokens, and what it takes to renew them: `expires_at` is a Unix time.

    `scopes` are those that the server asked for since, with which the next login begins.
    """

    tokens: auth.OAuthToken
    expires_at: float | None = None
    scopes: str = ""
    authority: auth.OAuthMetadata | None = None
    resource: auth.ProtectedResourceMetadata | None = None


class _Metadata(auth.OAuthClientMetadata):
    """The client as it registers itself: at least with scopes of ours, whatever the SDK sets."""

    least: str | None = Field(None, exclude=True)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, union_scopes(value, self.least) if name == "scope" else value)


class TokenStore:
    """A `TokenStorage` in the keyring, or in the private file of keys where there is none.

    `context` is that of the OAuth client that stores its tokens here.
    """

    def __init__(self, server: Server, secrets: ServerSecrets) -> None:
        self.context: OAuthContext | None = None
        self._server = server
        self._secrets = secrets

    async def access(self) -> Access | None:
        """The stored tokens, with what it takes to renew them."""
        return await asyncio.to_thread(self._read, TOKENS, Access)

    async def get_tokens(self) -> auth.OAuthToken | None:
        """The stored tokens."""
        access = await self.access()
        return access.tokens if access else None

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        """Store tokens; raises ConfigError."""
        access = Access(tokens=tokens)
        if tokens.expires_in is not None:
            access.expires_at = time.time() + tokens.expires_in
        if self.context is not None:
            access.authority = self.context.oauth_metadata
            access.resource = self.context.protected_resource_metadata
        await asyncio.to_thread(self._write, TOKENS, access)

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        """The client of the settings, or the one that was registered."""
        client_id = self._server.definition.client_id
        if client_id and not is_valid_client_metadata_url(client_id):
            secret = await asyncio.to_thread(self._secrets.client_secret, self._server)
            return auth.OAuthClientInformationFull(
                client_id=client_id,
                client_secret=secret or None,
                # every authority takes it (RFC 6749, 2.3.1)
                token_endpoint_auth_method="client_secret_basic",
            )
        return await asyncio.to_thread(self._read, CLIENT, auth.OAuthClientInformationFull)

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        """Store the registered client; raises ConfigError."""
        await asyncio.to_thread(self._write, CLIENT, client_info)

    async def set_scopes(self, scopes: str) -> None:
        """Keep what the next login asks for; raises ConfigError."""
        if access := await self.access():
            access.scopes = scopes
            await asyncio.to_thread(self._write, TOKENS, access)

    def forget(self) -> None:
        """Delete the login, if there is one."""
        for name in (TOKENS, CLIENT):
            self._secrets.delete(self._server.name, name, "file")
            if self._secrets.has_keyring:
                self._secrets.delete(self._server.name, name, "keyring")

    def _read(self, name: str, kind: type[M]) -> M | None:
        """The stored object, wherever it is: there may have been no keyring when it was stored."""
        text = self._secrets.read(self._server.name, name, "file")
        if not text and self._secrets.has_keyring:
            text = self._secrets.read(self._server.name, name, "keyring")
        try:
            return kind.model_validate_json(text) if text else None
        except ValidationError:  # of another version; a login replaces it
            return None

    def _write(self, name: str, value: BaseModel) -> None:
        """Store an object of the login; the file of keys serves where there is no keyring."""
        place = "keyring" if self._secrets.has_keyring else "file"
        text = value.model_dump_json(exclude_none=True)
        self._secrets.save(self._server.name, name, text, place)


class Login:
    """The access to one server; without tokens, `problem` says how to log in."""

    def __init__(self, server: Server, secrets: ServerSecrets) -> None:
        self.problem = ""
        self.store = TokenStore(server, secrets)
        self._server = server

    async def provider(self) -> OAuthClientProvider:
        """The OAuth client that uses and renews stored tokens, and never starts a login."""
        self.problem = ""
        provider = self._new_provider(_UNUSED, self._refuse, self._no_code)
        if access := await self.store.access():
            provider.context.token_expiry_time = access.expires_at
            provider.context.oauth_metadata = access.authority
            provider.context.protected_resource_metadata = access.resource
        return provider

    async def run(self, show: Callable[[str], None]) -> int:
        """Log in, and connect: the number of tools; `show` gets the address to open.

        Raises ConfigError if nobody logs in within `LOGIN_SECONDS`, or the server refuses.
        """
        answer: asyncio.Future[auth.AuthorizationCodeResult] = asyncio.Future()
        receiver = await asyncio.start_server(
            partial(_receive, answer), "127.0.0.1", 0, limit=_MAX_REQUEST
        )
        port = receiver.sockets[0].getsockname()[1]

        async def redirect(url: str) -> None:
            show(url)

        async def code() -> auth.AuthorizationCodeResult:
            return await answer

        former = await self.store.access()
        await asyncio.to_thread(self.store.forget)
        address, scopes = f"http://127.0.0.1:{port}/callback", former.scopes if former else ""
        provider = self._new_provider(address, redirect, code, scopes)
        try:
            async with receiver, asyncio.timeout(LOGIN_SECONDS):
                return await self._connect(provider)
        except TimeoutError:
            raise ConfigError("Nobody logged in; nothing was changed.") from None

    async def _connect(self, provider: OAuthClientProvider) -> int:
        """The number of tools; the connection makes the provider log in."""
        url = self._server.definition.url
        try:
            async with (
                httpx2.AsyncClient(auth=provider, timeout=LOGIN_SECONDS) as http,
                Client(streamable_http_client(url, http_client=http), cache=None) as client,
            ):
                return len((await client.list_tools()).tools)
        except* (MCPError, OAuthFlowError, httpx2.HTTPError, RuntimeError) as group:
            reason = str(first_error(group)) or "no reason"
            raise ConfigError(f"The login failed: {reason}.") from group

    def _new_provider(
        self,
        redirect_uri: str,
        redirect: Callable[[str], Awaitable[None]],
        code: Callable[[], Awaitable[auth.AuthorizationCodeResult]],
        scopes: str = "",
    ) -> OAuthClientProvider:
        """The SDK's OAuth client: `redirect` opens its address, and `code` waits for the answer."""
        definition = self._server.definition
        metadata = _Metadata(
            redirect_uris=[AnyUrl(redirect_uri)],
            client_name="Shepherd",
            token_endpoint_auth_method="none",
            least=union_scopes(definition.scopes, scopes),
        )
        client_id = definition.client_id
        document = client_id if is_valid_client_metadata_url(client_id) else None
        provider = OAuthClientProvider(
            definition.url, metadata, self.store, redirect, code, client_metadata_url=document
        )
        self.store.context = provider.context
        return provider

    async def _refuse(self, url: str) -> None:
        """End the attempt where a login would begin: only the user starts one, or a wider one."""
        await self.store.set_scopes(httpx2.URL(url).params.get("scope", ""))
        self.problem = f"it needs a login: `shepherd mcp login {self._server.name}`"
        raise ConfigError(self.problem)

    async def _no_code(self) -> auth.AuthorizationCodeResult:
        """The code of a login that `_refuse` has ended before."""
        raise ConfigError(self.problem)


async def _receive(
    answer: asyncio.Future[auth.AuthorizationCodeResult],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Take the code from the browser's request; anything else gets the page, too."""
    try:
        words = (await reader.readline()).decode("ascii", "replace").split(" ")
        parts = urlsplit(words[1] if len(words) > 1 else "")  # GET /callback?code=… HTTP/1.1
        values = {key: texts[0] for key, texts in parse_qs(parts.query).items()}
        if parts.path == "/callback" and not answer.done():
            if "code" in values:
                answer.set_result(
                    auth.AuthorizationCodeResult(
                        code=values["code"], state=values.get("state"), iss=values.get("iss")
                    )
                )
            elif "error" in values:
                answer.set_exception(ConfigError(f"The login failed: {values['error']}."))
        writer.write(_PAGE)
        await writer.drain()
    except (ValueError, OSError):
        pass  # not a request of a browser
    finally:
        writer.close()
