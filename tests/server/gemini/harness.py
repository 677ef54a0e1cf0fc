"""Google's client, and what it sends."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from google import genai
from google.genai import types

from tests.server.harness import RunningServer
from tests.server.held import RecordingBackend

PATH = "/v1beta/models/m:generateContent"
STREAM_PATH = "/v1beta/models/m:streamGenerateContent"
HI: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "hi"}]}]


def recording(script: str = "text: hello") -> RunningServer[RecordingBackend]:
    """A server whose backend keeps the sessions."""
    return RunningServer(RecordingBackend(script))


@contextmanager
def google(
    server: RunningServer[Any], version: str = "", key: str = "none"
) -> Generator[genai.Client]:
    """Google's client of a server; without a version it chooses its own."""
    options = types.HttpOptions(base_url=server.url, api_version=version or None)
    client = genai.Client(api_key=key, http_options=options)
    try:
        yield client
    finally:
        client.close()


def ask(client: genai.Client, contents: Any = "hi", **config: Any) -> types.GenerateContentResponse:
    """A whole answer; `config` are the fields of the client's config."""
    models: Any = client.models
    options = types.GenerateContentConfig(**config)
    answer: types.GenerateContentResponse = models.generate_content(
        model="m", contents=contents, config=options
    )
    return answer


def stream(
    client: genai.Client, contents: Any = "hi", **config: Any
) -> Generator[types.GenerateContentResponse]:
    """The events of a streamed answer."""
    models: Any = client.models
    options = types.GenerateContentConfig(**config)
    yield from models.generate_content_stream(model="m", contents=contents, config=options)


def text_of(chunks: list[types.GenerateContentResponse]) -> str:
    """The text of a stream without thoughts."""
    return "".join(
        part.text
        for chunk in chunks
        for candidate in chunk.candidates or []
        for part in (candidate.content and candidate.content.parts) or []
        if part.text and not part.thought
    )
