"""Another Shepherd: its real server, live and as recorded."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import httpx

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.base import Prefilled
from shepherd.backends.connect import adapter_for
from shepherd.backends.script import Script, parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import BackendError, BusyError, ModelLoadError
from shepherd.events import EventCallback
from shepherd.server.access.keys import KeyStore
from shepherd.server.openai.requests import ChatRequest
from shepherd.session import Session
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import check_chat
from tests.backends.conformance.said import SHORT, Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Room
from tests.backends.conformance.subjects.openai_chat import ChatSubject
from tests.backends.conformance.subjects.scripted import script_of
from tests.backends.conformance.wired import KEY
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, scripted

_ASKED = {"messages": HI, "stream": True, "stream_options": {"include_usage": True}}


class ShepherdSubject(ChatSubject):
    """What it says is recorded from the real server; conversations are held with it live.

    Before it tells a failure it has tried again itself.
    """

    name = "shepherd"
    type = "shepherd"
    model = "script"
    recorded = Said(calls=SHORT.calls)
    fails_for_good = True
    lacks: ClassVar = {
        Scenario.MODEL: "the server answers with its model, whatever name it is asked for"
    }

    def adapter(self, url: str) -> Adapter:
        return adapter_for(self.type, url, model=self.model)

    def frames(self, said: Said) -> Sequence[bytes]:
        return _recorded(script_of(said), thinking=bool(said.thought))

    def overflow(self, prompt: int, limit: int) -> Reply:
        return _told(parse_script(f"context: {limit}\nfull: {prompt - limit}"))

    def wrong_key(self) -> Reply:
        return _refused_key()

    def busy(self) -> Reply:
        return _refusal(BusyError("The queue is full.", self.busy_seconds))

    def down(self) -> Reply:
        return _refusal(ModelLoadError("There is no such file."))

    def failing(self) -> bytes:
        return _recorded("text: x\nerror: the model is gone", thinking=False)[-1]

    def check(self, request: Received) -> None:
        assert request.path.endswith("/chat/completions")
        ChatRequest.model_validate(request.json)
        check_chat(request.json["messages"])

    @asynccontextmanager
    async def opened(self, *answers: Said, limit: int = 0) -> AsyncGenerator[Room]:
        with scripted(script_of(*answers, limit=limit)) as server:
            backend = self.backend_at(server.url)

            async def released() -> None:
                await asyncio.to_thread(server.until, lambda: server.backend.active == 0)

            try:
                yield Room(backend, released)
            finally:
                await backend.aclose()


class _Failing(ScriptedBackend):
    """Accepts no prompt."""

    def __init__(self, error: BackendError) -> None:
        super().__init__(parse_script("text: x"))
        self._error = error

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        raise self._error


def _ask(server: RunningServer[ScriptedBackend], *, thinking: bool = False, key: str = "") -> Reply:
    """The server's answer, as it came."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {**_ASKED, "chat_template_kwargs": {"enable_thinking": thinking}}
    with httpx.Client(trust_env=False, timeout=PATIENCE) as http:
        came = http.post(f"{server.url}{CHAT}", json=body, headers=headers)
    kept = ("content-type", "retry-after")
    told = {name: came.headers[name] for name in kept if name in came.headers}
    return Reply(came.content, came.status_code, told)


@cache
def _recorded(script: str, *, thinking: bool) -> Sequence[bytes]:
    with scripted(script) as server:
        body = _ask(server, thinking=thinking).body
    assert isinstance(body, bytes)
    return re.findall(rb".*?\n\n", body, re.DOTALL)


def _told(script: Script) -> Reply:
    with RunningServer(ScriptedBackend(script)) as server:
        return _ask(server)


@cache
def _refusal(error: BackendError) -> Reply:
    with RunningServer[ScriptedBackend](_Failing(error)) as server:
        return _ask(server)


@cache
def _refused_key() -> Reply:
    with TemporaryDirectory() as folder:
        keys = KeyStore(Path(folder) / "keys" / "keys.json")
        keys.add("another")
        with RunningServer(ScriptedBackend(parse_script("text: x")), keys=keys) as server:
            return _ask(server, key=KEY)
