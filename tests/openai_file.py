"""A plugin that holds each answer of a test's server to OpenAI's published OpenAPI file.

`pytest -p tests.openai_file --openai-file openapi.json tests/server/openai_responses` fails a test
in which an answer or an event of OpenAI's API does not fit. It needs the package `jsonschema`.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.server import harness

PREFIX = re.compile(r"^(/v1)?(?=/(chat/|completions|embeddings|models|responses))")
OTHER_APIS = ("anthropic", "gemini", "ollama", "llamacpp")
NULLS = frozenset({"user", "usage", "logprobs", "finish_reason", "refusal", "token_logprobs"})
"""Fields that OpenAI's API sends as null, as in the file's examples, against its schemas."""
ERROR = "#/components/schemas/ErrorResponse"
EVENTS = "#/components/schemas/ResponseStreamEvent"
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Answer:
    """What a server has sent for one request."""

    method: str
    path: str
    status: int = 0
    kind: str = ""
    body: bytearray = field(default_factory=bytearray)

    @property
    def is_stream(self) -> bool:
        return "event-stream" in self.kind

    def objects(self) -> Iterator[Any]:
        """The JSON objects of the answer; an event that was cut is left out."""
        if not self.is_stream:
            yield json.loads(self.body)
            return
        for block in self.body.decode().split("\n\n")[:-1]:
            for line in block.split("\n"):
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))


class Recorder:
    """Passes requests on to an application, and keeps its answers in JSON."""

    def __init__(self, app: Any, answers: list[Answer]) -> None:
        self._app = app
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        answer = Answer(scope.get("method", ""), scope.get("path", ""))

        async def keep(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.kind = dict(message["headers"]).get(b"content-type", b"").decode()
            answer.body += message.get("body", b"")
            await send(message)

        await self._app(scope, receive, keep)
        if PREFIX.match(answer.path) and ("json" in answer.kind or answer.is_stream):
            self._answers.append(answer)


class PublishedFile:
    """The schemas of the file."""

    def __init__(self, path: Path) -> None:
        jsonschema: Any = import_module("jsonschema")
        referencing: Any = import_module("referencing")
        dialect: Any = import_module("referencing.jsonschema").DRAFT202012
        self._document: dict[str, Any] = json.loads(path.read_bytes())
        resource = referencing.Resource(contents=self._document, specification=dialect)
        self._registry = referencing.Registry().with_resource("urn:openai", resource)
        self._kind = jsonschema.Draft202012Validator

    def problems(self, answer: Answer) -> Iterator[str]:
        """What does not fit, with its place."""
        for item in answer.objects():
            place = self._place(answer, item)
            if place is None:
                continue
            schema = {"$ref": f"urn:openai{place}"}
            for error in self._kind(schema, registry=self._registry).iter_errors(item):
                deepest = _deepest(error)
                if not _is_exception(answer, deepest):
                    where = "/".join(map(str, deepest.absolute_path))
                    yield f"{answer.method} {answer.path} {place} {where}: {deepest.message[:300]}"

    def _place(self, answer: Answer, item: Any) -> str | None:
        if answer.status >= 400 or (answer.is_stream and set(item) == {"error"}):
            return ERROR
        if answer.is_stream and "/responses" in answer.path:
            return self._event(item["type"])
        path = PREFIX.sub("", answer.path)
        for pattern, operations in self._document["paths"].items():
            responses = operations.get(answer.method.lower(), {}).get("responses", {})
            kind = "text/event-stream" if answer.is_stream else "application/json"
            if not re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", pattern), path):
                continue
            if kind in responses.get("200", {}).get("content", {}):
                steps = ("paths", pattern, answer.method.lower(), "responses", "200", "content")
                return "#/" + "/".join(_escaped(step) for step in (*steps, kind, "schema"))
        return None

    def _event(self, kind: str) -> str:
        schemas = self._document["components"]["schemas"]
        for choice in schemas["ResponseStreamEvent"]["anyOf"]:
            event = schemas[choice["$ref"].rsplit("/")[-1]]["properties"]["type"]
            if kind in event.get("enum", [event.get("const")]):
                return choice["$ref"]
        return EVENTS


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _deepest(error: Any) -> Any:
    while error.context:
        error = max(error.context, key=lambda cause: len(cause.absolute_path))
    return error


def _is_exception(answer: Answer, error: Any) -> bool:
    """Nulls as OpenAI's API sends them, and what goes beyond that API on request."""
    names = set(error.absolute_path)
    if error.instance is None and names & NULLS:
        return True
    if answer.path.endswith("/embeddings"):
        return "embedding" in names or isinstance(error.instance, list)
    return error.validator == "maximum" or error.instance == "custom"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--openai-file", help="OpenAI's openapi.json")


@pytest.fixture(scope="session")
def published(request: pytest.FixtureRequest) -> PublishedFile:
    """The file that the command line names."""
    return PublishedFile(Path(str(request.config.getoption("--openai-file"))))


@pytest.fixture(scope="session", autouse=True)
def answers() -> Iterator[list[Answer]]:
    """The answers of all servers that the harness starts."""
    answers: list[Answer] = []
    harness.observers.append(partial(Recorder, answers=answers))
    yield answers
    harness.observers.clear()


@pytest.fixture(autouse=True)
def answers_fit(
    request: pytest.FixtureRequest, published: PublishedFile, answers: list[Answer]
) -> Iterator[None]:
    """Fails the test when an answer does not fit."""
    answers.clear()
    yield
    if not any(name in str(request.path) for name in OTHER_APIS):
        problems = {problem for answer in answers for problem in published.problems(answer)}
        assert not problems, "\n".join(sorted(problems))
