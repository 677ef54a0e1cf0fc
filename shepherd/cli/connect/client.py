"""A client of `shepherd --cliserver`: prompts, updates that survive lost connections, approvals."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from typing import Self

import httpx
from msgspec import Struct

from shepherd import errors, json_text, messages
from shepherd.backends.api.framing import SSEDecoder, StreamEvent
from shepherd.conversation.shared.updates import CLIENT_HEADER, RESUME_HEADER, UpdateKind
from shepherd.images import Image

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 90.0
"""A stream that is silent for longer, even without a comment, is resumed."""

INITIAL_PAUSE = 0.2
MAX_PAUSE = 10.0
MAX_ATTEMPTS = 12
"""Connections in a row that may fail; they take a minute or more."""


AGENT_UPDATES = "/approvals/updates"


class NoSessionError(errors.BackendError):
    """The server has no shared session."""


class RemoteUpdate(Struct, frozen=True):
    """One update from the server; `id` is "" if a stream can't resume from it."""

    id: str
    kind: UpdateKind
    data: messages.JsonObject

    @property
    def request(self) -> str:
        """The request that it belongs to, or ""."""
        return str(self.data.get("request", ""))


class SharedSessionClient:
    """One client of a shared session; it keeps its id.

    All calls raise AccessError for a wrong key, UnreachableError, BusyError, InvalidRequestError,
    or BackendError with the server's message.
    """

    def __init__(
        self, url: str, api_key: str = "", *, initial_pause: float = INITIAL_PAUSE
    ) -> None:
        self.url = url.rstrip("/")
        self.id = f"client_{secrets.token_hex(12)}"
        self._initial_pause = initial_pause
        headers = {CLIENT_HEADER: self.id}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            self._http = httpx.AsyncClient(base_url=self.url, headers=headers)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise errors.InvalidRequestError(
                f"{url} can't be used as an address: {error}"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def send(self, prompt: str, images: Sequence[Image] = (), *, steer: bool = False) -> str:
        """Put a prompt at the end of the server's queue; returns the request's id.

        With `steer`, it joins the running request of this client, if there is one.
        """
        body: messages.JsonObject = {"prompt": prompt, "async": True}
        if steer:
            body["steer"] = True
        if images:
            body["images"] = [{"data": image.base64, "name": image.name} for image in images]
        answer = await self._call("POST", "/request", body)
        return str(answer["request"])

    async def request(self, id: str) -> messages.JsonObject:
        """The state of a request, and its answer once it has ended."""
        return await self._call("GET", f"/request/{id}")

    async def cancel(self, id: str) -> None:
        """Withdraw a request, or stop it; an ended or forgotten one does not change."""
        await self._call("DELETE", f"/request/{id}", ignored=(404, 409))

    async def session(self) -> messages.JsonObject:
        """The session's state; the updates after its `update_id` continue it."""
        return await self._call("GET", "/session")

    async def context(self) -> messages.JsonObject:
        """The tokens of each part of the next prompt."""
        return await self._call("GET", "/context")

    async def clear(self) -> None:
        """Delete the conversation's messages."""
        await self._call("POST", "/clear")

    async def command(self, text: str) -> str:
        """Run a command of the conversation; its output comes as an update too.

        A command such as `!ls` runs until its end, and cancelling ends it.
        """
        body: messages.JsonObject = {"command": text}
        answer = await self._call("POST", "/command", body, endless=text.startswith("!"))
        return str(answer.get("content", ""))

    async def decide(
        self,
        id: str,
        decision: str,
        reason: str = "",
        values: Sequence[str] = (),
        parts: Sequence[int] | None = None,
    ) -> None:
        """Answer an approval; one that was decided meanwhile does not change."""
        body: messages.JsonObject = {"decision": decision, "reason": reason}
        if values:
            body["values"] = [*values]
        if parts is not None:
            body["parts"] = [*parts]
        await self._call("POST", f"/approvals/{id}", body, ignored=(404,))

    async def agent_questions(self) -> messages.JsonObject:
        """The questions of a server's agent; the updates after its `update_id` continue them."""
        return await self._call("GET", "/approvals")

    async def updates(
        self, after: str = "", path: str = "/updates"
    ) -> AsyncGenerator[RemoteUpdate]:
        """All updates after `after`, or from now on.

        A lost connection is resumed at the same place. Each connection begins with CONNECTED.
        SNAPSHOT means that updates are lost and the caller must read `session`.
        """
        failures = 0  # in a row
        while True:
            try:
                async for update in self._connection(after, path):
                    after = update.id or after  # "": a stream can't resume from this update
                    failures = 0
                    yield update
            except httpx.TransportError as error:
                failures += 1
                if failures >= MAX_ATTEMPTS:
                    raise self._unreachable(error) from error
            # also after an orderly end: the server may start again
            await asyncio.sleep(min(MAX_PAUSE, self._initial_pause * 2**failures))

    async def _connection(self, after: str, path: str) -> AsyncGenerator[RemoteUpdate]:
        """The updates of one connection until it ends or, by TransportError, is lost."""
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        headers = {RESUME_HEADER: after} if after else {}
        async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if not response.is_success:
                await response.aread()
                raise self._refused(response)
            decoder = SSEDecoder()
            async for data in response.aiter_bytes():
                for event in decoder.feed(data):
                    update = parse_update(event)
                    if update is not None:
                        yield update

    async def _call(
        self,
        method: str,
        path: str,
        body: messages.JsonObject | None = None,
        ignored: tuple[int, ...] = (),
        *,
        endless: bool = False,
    ) -> messages.JsonObject:
        """The server's answer, also that with an `ignored` status; raises as the class says."""
        seconds = None if endless else ANSWER_SECONDS
        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            response = await self._http.request(method, path, json=body, timeout=timeout)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.is_success or response.status_code in ignored:
            return json_text.object_in(response.content)
        raise self._refused(response)

    def _unreachable(self, error: httpx.TransportError) -> errors.UnreachableError:
        """The error for a server that can't be reached; some of httpx's have no text."""
        reason = str(error) or type(error).__name__
        return errors.UnreachableError(
            f"No shared session can be reached at {self.url}: {reason}; is `shepherd --cliserver` "
            "running there?"
        )

    def _refused(self, response: httpx.Response) -> errors.BackendError:
        """The error for an answer that refuses, by its status."""
        status = response.status_code
        fields = json_text.as_object(json_text.object_in(response.content).get("error"))
        message = str(fields.get("message") or f"{self.url} answered with status {status}.")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return errors.AccessError(f"{message} Give the key with --api-key or SHEPHERD_API_KEY.")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return errors.BusyError(message)
        if status in (400, 413, 415):  # a wrong request, a long one, one of another type
            return errors.InvalidRequestError(message)
        # a server with a session names what it did not find, such as a request
        if status == HTTPStatus.NOT_FOUND and not fields.get("code", "").endswith("_not_found"):
            return NoSessionError(f"There is no shared session at {self.url}.")
        return errors.BackendError(message)


def parse_update(event: StreamEvent) -> RemoteUpdate | None:
    """The update in an event; None for an unknown one of a newer server."""
    try:
        kind = UpdateKind(event.name)
    except ValueError:
        return None
    return RemoteUpdate(event.id, kind, json_text.object_in(event.data))
