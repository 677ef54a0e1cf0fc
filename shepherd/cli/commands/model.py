"""`shepherd model`: lists and downloads models of this machine and of Ollama servers."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from shepherd.cli.commands.model_text import file_line, memory_text, note, print_rows, size_text
from shepherd.cli.request import load_settings
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.settings import Config
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, builtin_model

if TYPE_CHECKING:
    from shepherd.cli.commands.model_ollama import OllamaModels

HOW_TO_GET = "`shepherd model pull OWNER/NAME` gets one"

model = typer.Typer(
    name="model", help="Models on this machine and on Ollama servers.", no_args_is_help=True
)
OnServer = Annotated[
    str,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="The models of this provider, an Ollama server; ollama is the one on this machine.",
    ),
]


@model.command("list")
def list_models(context: typer.Context, provider: OnServer = "") -> None:
    """List the built-in model and the GGUF files of the models directory, or a server's models."""
    if provider:
        _ollama(provider).list()
        return
    from shepherd.backends.llamacpp.native.gguf import available_models, summarise

    directory = _models_dir(_config(context))
    files = available_models(directory) if directory.is_dir() else []
    names = [BUILTIN_NAME, *(str(path.relative_to(directory)) for path in files)]
    width = max(len(name) for name in names)
    for name, path in zip(names, [builtin_model(), *files], strict=True):
        try:
            text = file_line(summarise(path))
        except ModelLoadError as error:
            text = str(error)
        typer.echo(sanitize(f"{name:<{width}}  {text}"))
    if not files:
        note(f"No models in {directory} yet; {HOW_TO_GET}.")


@model.command("info")
def info(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A model as `--model` takes it.")],
    provider: OnServer = "",
) -> None:
    """Describe a model; for a file, also tell whether it fits into this machine's memory."""
    if provider:
        _ollama(provider).info(name)
        return
    from shepherd.backends.llamacpp.native.fitting import fit_model
    from shepherd.backends.llamacpp.native.gguf import check_model_file, locate_model, summarise
    from shepherd.backends.llamacpp.vision.projector import choose_projector

    config = _config(context)
    directory = _models_dir(config)
    path = builtin_model() if name == BUILTIN_NAME else locate_model(name, directory)
    result = summarise(path)
    header = check_model_file(path)
    choice = choose_projector(path, header, config.llamacpp)
    fit = fit_model(header, config.llamacpp, beside=choice.bytes)
    size = config.llamacpp.context_size or result.context
    rows = {
        "file": str(result.path),
        "name": result.name,
        "architecture": result.architecture,
        "parameters": result.parameters,
        "quantisation": result.quantisation,
        "size": size_text(result.size),
        "context": f"{result.context:,} tokens" if result.context else "",
        "template": result.family,
        "images": choice.text,
        "memory": memory_text(result, size, fitted=fit.context),
        "gpu": fit.text if fit.demand.gpus else "",
    }
    print_rows(rows)


@model.command("pull")
def pull(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="OWNER/NAME[:QUANT|/FILE]",
            help="A model on Hugging Face; with --provider, as Ollama calls it.",
        ),
    ],
    provider: OnServer = "",
) -> None:
    """Download a model into the models directory, or make an Ollama server fetch it.

    An interrupted download continues where it stopped.
    """
    _hide_bars_without_terminal()
    try:
        if provider:
            _ollama(provider).pull(name)
        else:
            _pull_file(name, _models_dir(_config(context)))
    except KeyboardInterrupt:
        note("Stopped; the same command goes on from here.")
        raise


@model.command("unload")
def unload(
    name: Annotated[str, typer.Argument(help="A model as Ollama calls it.")],
    provider: OnServer,
) -> None:
    """Remove a model from an Ollama server's memory; it stays on its disk."""
    _ollama(provider).unload(name)


def _pull_file(name: str, directory: Path) -> None:
    from shepherd.catalog.hub import pull as pull_model  # imports huggingface_hub

    path = pull_model(name, directory, note)
    typer.echo(str(path))
    note(f"`shepherd --model {path.relative_to(directory)}` talks to it.")


def _ollama(provider: str) -> "OllamaModels":
    from shepherd.cli.commands.model_ollama import OllamaModels  # imports httpx

    return OllamaModels(provider)


def _hide_bars_without_terminal() -> None:
    """Switch progress bars off if stderr is not a terminal."""
    if not sys.stderr.isatty():
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _models_dir(config: Config) -> Path:
    return Path(config.llamacpp.models_dir).expanduser()


def _config(context: typer.Context) -> Config:
    overrides = cast(Mapping[str, object], context.obj)
    return load_settings(Path.cwd(), os.environ, overrides)
