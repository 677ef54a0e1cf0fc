"""The scripted backend, which speaks no language at all."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import ClassVar

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from tests.backends.conformance.said import Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Room, Subject

_NO_STREAM = "it has no connection and no stream"


def script_of(*answers: Said, limit: int = 0) -> str:
    """Answers as a script; one that is held says its text and waits."""
    head = [f"context: {limit}"] if limit else []
    return "\n".join([*head, "\n---\n".join("\n".join(_steps(said)) for said in answers)])


def _steps(said: Said) -> Iterator[str]:
    yield "chunk: 1" if said.held else "chunk: 1000"
    if said.thought:
        yield f"think: {json.dumps(said.thought)}"
    yield from (f"text: {json.dumps(piece)}" for piece in said.text)
    if said.held:
        yield "delay: 3600"
    yield from (f"call: {name} {json.dumps(arguments)}" for name, arguments in said.calls)


class ScriptedSubject(Subject):
    """Plays the script in this process."""

    name = "scripted"
    lacks: ClassVar = {
        Scenario.RETRY: "it has nobody to ask again",
        Scenario.MALFORMED: _NO_STREAM,
        Scenario.CUT: _NO_STREAM,
        Scenario.KEY: "it asks for no key",
        Scenario.MODEL: "it has one script and no models",
        Scenario.SDK: "it is nobody's",
    }

    @asynccontextmanager
    async def opened(self, *answers: Said, limit: int = 0) -> AsyncGenerator[Room]:
        backend = ScriptedBackend(parse_script(script_of(*answers, limit=limit)))

        async def released() -> None:
            assert backend.active == 0

        yield Room(backend, released)
        await backend.aclose()
