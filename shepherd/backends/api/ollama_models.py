"""Manages the models of an Ollama server: list, show, pull, unload."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
from msgspec import Struct

from shepherd.backends.api.ollama import entries, stored_window, trained_context
from shepherd.backends.output.style import GENERIC, detect_style
from shepherd.catalog.hub import PullProgress
from shepherd.errors import AccessError, BackendError, InvalidRequestError, UnreachableError
from shepherd.json_text import as_count, as_object, as_text, as_texts, object_in
from shepherd.messages import JsonObject


class LocalModel(Struct, frozen=True):
    """A model on the server's disk; `size` in bytes, `loaded` tells whether it is in memory.

    `remote_host` is the host of a model in Ollama's cloud; the disk holds only its name.
    """

    name: str
    size: int = 0
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    loaded: bool = False
    remote_host: str = ""


class ModelDetails(Struct, frozen=True):
    """A model in detail; tokens are 0 if the server does not state them.

    `context_size` is requested unless a setting overrides it; `trained_context` is the model's
    maximum. `capabilities` are Ollama's words: completion, tools, thinking, vision, embedding.
    `template` is the family of its chat template, "" if unknown.
    """

    name: str
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
    context_size: int = 0
    trained_context: int = 0
    capabilities: tuple[str, ...] = ()
    parameters: str = ""
    template: str = ""


def local_model(item: JsonObject, loaded: Collection[Any]) -> LocalModel:
    """One entry of /api/tags; `loaded` holds the names of models in memory."""
    name = as_text(item.get("name")) or as_text(item.get("model"))
    details = as_object(item.get("details"))
    return LocalModel(
        name,
        size=as_count(item.get("size")) or 0,
        family=as_text(details.get("family")),
        parameter_size=as_text(details.get("parameter_size")),
        quantization=as_text(details.get("quantization_level")),
        loaded=name in loaded,
        remote_host=as_text(item.get("remote_host")),
    )


def model_details(name: str, body: JsonObject) -> ModelDetails:
    """The answer of /api/show."""
    details = as_object(body.get("details"))
    window = stored_window(body, name)
    return ModelDetails(
        name,
        family=as_text(details.get("family")),
        parameter_size=as_text(details.get("parameter_size")),
        quantization=as_text(details.get("quantization_level")),
        context_size=window.context_size if window else 0,
        trained_context=trained_context(body),
        capabilities=tuple(as_texts(body.get("capabilities"))),
        parameters=as_text(body.get("parameters")),
        template=_template(as_text(body.get("template"))),
    )


def _template(text: str) -> str:
    """The template's family, "" if unknown.

    Ollama's own template language shows it as well as Jinja does.
    """
    family = detect_style(text).family
    return "" if family == GENERIC.family else family


_QUICK = httpx.Timeout(30, connect=5)
_PATIENT = httpx.Timeout(30, connect=5, read=None)  # the server is silent while it checks a sum

_PULL = "/api/pull"

_MAX_REASON = 300
"""The maximum of characters of a server's message that is repeated."""


class OllamaManager(Struct, frozen=True):
    """Makes one server's requests about its models.

    `headers` are `OllamaAdapter.auth`'s; the caller closes the client. `name` is the provider's,
    for commands in messages.

    All methods raise UnreachableError if no server answers, AccessError if a key is required, and
    InvalidRequestError for an unknown model. The messages name server and model.
    """

    client: httpx.AsyncClient
    base_url: str
    headers: Mapping[str, str] = {}
    name: str = "ollama"

    async def list(self) -> list[LocalModel]:
        """The models on the server's disk, in its order: the last changed first."""
        loaded = {item.get("name") for item in entries(await self._ask("GET", "/api/ps"))}
        result = entries(await self._ask("GET", "/api/tags"))
        models = (local_model(item, loaded) for item in result)
        return [model for model in models if model.name]

    async def show(self, model: str) -> ModelDetails:
        """The server's description of a model on its disk."""
        return model_details(model, await self._ask("POST", "/api/show", {"model": model}))

    async def pull(self, model: str) -> AsyncGenerator[PullProgress]:
        """Fetch a model into the server's store, step by step; ends when it is complete.

        An interrupted pull continues where it stopped.
        """
        body = {"model": model, "stream": True}
        is_complete = False
        async with self._stream("POST", _PULL, body, _PATIENT) as response:
            async for line in response.aiter_lines():
                step = object_in(line)
                if "error" in step:  # the status of the answer was sent before
                    raise _failed_pull(model, as_text(step["error"]))
                if step:
                    is_complete = is_complete or step.get("status") == "success"
                    yield PullProgress(
                        as_text(step.get("status")),
                        as_text(step.get("digest")),
                        as_count(step.get("completed")) or 0,
                        as_count(step.get("total")) or 0,
                    )
        if not is_complete:
            message = f"The pull of {model} was broken off; pull again, it goes on where it stopped"
            raise UnreachableError(message)

    async def unload(self, model: str) -> None:
        """Remove a model from the server's memory; does nothing if it is not loaded."""
        await self._ask("POST", "/api/generate", {"model": model, "keep_alive": 0, "stream": False})

    async def _ask(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """The server's answer as one object; raises InvalidRequestError for anything else."""
        async with self._stream(method, path, body, _QUICK) as response:
            result = object_in(await response.aread())
        if not result:
            raise InvalidRequestError(f"The server at {self.base_url} is not an Ollama server")
        return result

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: JsonObject | None, timeout: httpx.Timeout
    ) -> AsyncGenerator[httpx.Response]:
        """The answer before its body is read; failures of any kind become our errors."""
        url = self.base_url.rstrip("/") + path
        sending = self.client.stream(method, url, json=body, headers=self.headers, timeout=timeout)
        try:
            async with sending as response:
                if response.status_code >= 400:
                    text = (await response.aread()).decode("utf-8", "replace")
                    raise self._refusal(response.status_code, text, body or {}, path)
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            message = f"No Ollama server answers at {self.base_url}; start it with `ollama serve`"
            raise UnreachableError(message) from error
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise InvalidRequestError(f"The address or a header is wrong: {error}") from error
        except httpx.HTTPError as error:
            message = f"Ollama at {self.base_url} broke off: {error or type(error).__name__}"
            raise UnreachableError(message) from error

    def _refusal(self, status: int, text: str, body: JsonObject, path: str) -> BackendError:
        """The error for an unsuccessful `status` with this `text`; `body` and `path` were sent."""
        message = as_text(object_in(text).get("error")) or text.strip()[:_MAX_REASON]
        reason = " ".join(message.split()) or f"status {status}"
        if status in (401, 403):
            what = "the key" if self.headers else "the request, and no key was sent"
            return AccessError(f"Ollama at {self.base_url} refuses {what}: {reason}")
        if status == 404 and path == _PULL:
            return _failed_pull(as_text(body["model"]), reason)
        if status == 404 and "model" in body:
            model = body["model"]
            hint = f"`shepherd model pull {model} --provider {self.name}` gets it"
            return InvalidRequestError(f"Ollama has no model {model}: {reason}; {hint}", "model")
        if status >= 500:
            return UnreachableError(f"Ollama at {self.base_url} failed: {reason}")
        return InvalidRequestError(f"Ollama at {self.base_url} refuses: {reason}")


def _failed_pull(model: str, message: str) -> InvalidRequestError:
    """The error for a failed pull; Ollama's `message` may have several lines."""
    reason = " ".join(message.split())[:_MAX_REASON] or "it does not say why"
    is_unknown = "file does not exist" in reason
    hint = "; look for its name at https://ollama.com/search" if is_unknown else ""
    return InvalidRequestError(f"Ollama can't pull {model}: {reason}{hint}", "model")


MAX_ATTEMPTS = 5
"""The number of connections that may be lost in a row without any progress."""

RESUMED = "the connection broke off; going on"
"""The status of the step that is reported after a lost connection."""


async def pull_on(
    manager: OllamaManager, model: str, *, pause: float = 0.2
) -> AsyncGenerator[PullProgress, None]:
    """As `OllamaManager.pull`, but a pull that breaks off after its start is resumed.

    `pause` is the first pause in seconds; it doubles after each attempt without progress.
    """
    fetched: dict[str, int] = {}  # the bytes of each file so far, by its digest
    failures = 0  # since the last progress
    has_begun = False
    while True:
        try:
            async with aclosing(manager.pull(model)) as steps:
                async for step in steps:
                    has_begun = True
                    if step.completed > fetched.get(step.digest, 0):
                        fetched[step.digest] = step.completed
                        failures = 0
                    yield step
            return
        except UnreachableError:
            failures += 1
            if not has_begun or failures >= MAX_ATTEMPTS:
                raise
        yield PullProgress(RESUMED)
        await asyncio.sleep(pause * 2 ** (failures - 1))
