"""`shepherd model … --provider NAME`: the models of an Ollama server."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from shepherd.backends.api import ollama_models
from shepherd.backends.api.http.client import new_http
from shepherd.backends.api.ollama import OllamaAdapter
from shepherd.backends.connect import endpoint_of
from shepherd.catalog import hub
from shepherd.catalog.discovery import DEFAULT_URL, adding_command, ollama_url
from shepherd.catalog.model_files import MIB, size_text
from shepherd.cli.commands.output import note, show, show_rows, show_table
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.errors import UsageError

OLLAMA = "ollama"
"""The type, and the name of the server at OLLAMA_HOST unless a provider has it."""


T = TypeVar("T")


class OllamaModels:
    """The commands for one provider."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError for an unknown provider, UsageError for one of another type."""
        self._book = ProviderBook.from_env(os.environ)
        stored = [provider.name for provider in self._book.all()]
        if name == OLLAMA and name not in stored:
            address = ollama_url(os.environ)
            self._provider = make_provider(name, {"type": OLLAMA, "base_url": address})
        else:
            self._provider = self._book.pick(name)
        self._name = self._provider.name
        self._is_stored = self._name in stored
        if self._provider.type != OLLAMA:
            raise UsageError(
                f"{self._name} is of type {self._provider.type}: only providers of type {OLLAMA} "
                "have models that can be managed from here."
            )

    def list(self) -> None:
        """The models on the server's disk."""
        models = self._call(lambda manager: manager.list())
        if models:
            show_table([_row(model) for model in models], number_column=1)
        else:
            how = f"`shepherd model pull qwen3:4b --provider {self._name}`"
            note(f"No models at {self._name} yet; {how} gets one.")

    def info(self, model: str) -> None:
        """The server's description of a model."""
        result = self._call(lambda manager: manager.show(model))
        # Ollama aligns the values with blanks
        settings = (" ".join(line.split()) for line in result.parameters.splitlines())
        show_rows(
            {
                "model": result.name,
                "provider": f"{self._name} ({self._provider.base_url or DEFAULT_URL})",
                "architecture": result.family,
                "parameters": result.parameter_size,
                "quantisation": result.quantization,
                "context": self._context(result),
                "template": result.template,
                "can": ", ".join(result.capabilities),
                "settings": "; ".join(filter(None, settings)),
            }
        )

    def pull(self, model: str) -> None:
        """Make the server fetch a model, and show the progress."""
        self._call(lambda manager: _pull(manager, model))
        show(model)
        if self._is_stored:
            note(f"`shepherd --provider {self._name}/{model}` talks to it.")
        else:
            note(f"`{adding_command(self._provider.base_url, model)}` connects it.")

    def unload(self, model: str) -> None:
        """Remove a model from the server's memory."""
        self._call(lambda manager: manager.unload(model))
        note(f"{model} is no longer in the memory of {self._name}.")

    def _context(self, details: ollama_models.ModelDetails) -> str:
        """The context that requests ask for, and the model's own if that is longer."""
        size = self._provider.context_size or details.context_size
        if not size:
            return ""
        more = f" (it could take {details.trained_context:,})"
        return f"{size:,} tokens" + (more if details.trained_context > size else "")

    def _call(self, ask: Callable[[ollama_models.OllamaManager], Awaitable[T]]) -> T:
        """What `ask` returns for the manager of the provider's models; raises ConfigError."""

        async def call() -> T:
            endpoint = endpoint_of(self._provider, self._book)
            headers = {**OllamaAdapter().auth(endpoint.api_key), **endpoint.headers}
            async with new_http(endpoint) as client:
                url = endpoint.base_url
                return await ask(ollama_models.OllamaManager(client, url, headers, name=self._name))

        return asyncio.run(call())


async def _pull(manager: ollama_models.OllamaManager, model: str) -> None:
    """Make the server fetch a model, and show the progress."""
    bars = PullBars()
    try:
        async with aclosing(ollama_models.pull_on(manager, model)) as steps:
            async for step in steps:
                bars.show(step)
    finally:
        bars.close()


def _row(model: ollama_models.LocalModel) -> tuple[str, ...]:
    """The cells of a model in the list."""
    return (
        model.name,
        "in the cloud" if model.remote_host else size_text(model.size),
        model.family,
        model.parameter_size,
        model.quantization,
        "loaded" if model.loaded else "",
    )


class PullBars:
    """Shows a bar for each large file on a terminal, otherwise a line; a line for other steps."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last_status = ""
        self._digest = ""
        """That of the file whose bar or line was begun last."""
        self._bar: Any = None  # huggingface_hub's types are incomplete

    def show(self, step: hub.PullProgress) -> None:
        """Show one step."""
        if not step.total:  # it transfers nothing
            self.close()
            self._digest = ""
            if step.status not in (self._last_status, "success"):
                self._last_status = step.status
                note(step.status)
            return
        if step.total < MIB:  # a licence, a template
            return
        if step.digest != self._digest:
            self._begin(step)
        if self._bar is not None:
            self._bar.update(step.completed - self._bar.n)

    def _begin(self, step: hub.PullProgress) -> None:
        """Begin the bar of a file, or print a line where a bar can't be drawn."""
        self.close()
        self._digest = step.digest
        if not self._is_terminal:
            note(f"{step.status} ({size_text(step.total)})")
            return
        from huggingface_hub.utils import tqdm  # the bars of other pulls

        self._bar = tqdm(
            desc=sanitize(step.status),
            total=step.total,
            initial=step.completed,
            unit="B",
            unit_scale=True,
        )

    def close(self) -> None:
        """End the bar, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
