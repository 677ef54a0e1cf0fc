"""`shepherd model`: lists and downloads models of this machine and of Ollama servers."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shepherd.cli.commands.models.pick import absent_rows, pick, plan_rows
from shepherd.cli.commands.output import note, show, show_rows, size_text
from shepherd.cli.request import loaded_config
from shepherd.config.llamacpp import MIN_CONTEXT
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, builtin_model

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.native.sizes import ModelSummary
    from shepherd.cli.commands.model_ollama import OllamaModels

LISTED_CONTEXT = 8192
"""Tokens of context with which a model of the list fits into the memory, or not."""

HOW_TO_GET = "`shepherd model pull OWNER/NAME` gets one"

model = typer.Typer(
    name="model", help="Models on this machine and on Ollama servers.", no_args_is_help=True
)
model.command("pick")(pick)
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
    from shepherd.backends.llamacpp.native.gguf import available_models
    from shepherd.backends.llamacpp.native.sizes import summarise

    directory = loaded_config(context).llamacpp.models_path
    files = available_models(directory) if directory.is_dir() else []
    names = [BUILTIN_NAME, *(str(path.relative_to(directory)) for path in files)]
    width = max(len(name) for name in names)
    for name, path in zip(names, [builtin_model(), *files], strict=True):
        try:
            text = _file_line(summarise(path))
        except ModelLoadError as error:
            text = str(error)
        show(f"{name:<{width}}  {text}")
    if not files:
        note(f"No models in {directory} yet; {HOW_TO_GET}.")


@model.command("info")
def info(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A model as `--model` takes it, of `pick`, or OWNER/NAME:QUANT.")
    ],
    provider: OnServer = "",
) -> None:
    """Describe a model, and tell what of it fits into this machine and how fast it would be.

    Of a model on the hub only the header is read.
    """
    if provider:
        _ollama(provider).info(name)
        return
    from shepherd.backends.llamacpp.native.fitting import fit_model
    from shepherd.backends.llamacpp.native.gguf import check_model_file, locate_model
    from shepherd.backends.llamacpp.native.sizes import summarise
    from shepherd.backends.llamacpp.vision.projector import choose_projector

    config = loaded_config(context)
    directory = config.llamacpp.models_path
    try:
        path = builtin_model() if name == BUILTIN_NAME else locate_model(name, directory)
    except ModelLoadError:
        if rows := absent_rows(name, config.llamacpp):
            show_rows(rows)
            return
        raise
    summary = summarise(path)
    header = check_model_file(path)
    choice = choose_projector(path, header, config.llamacpp)  # the file that reads images
    fit = fit_model(header, config.llamacpp, beside=choice.bytes)
    context_size = config.llamacpp.context_size or summary.context
    rows = {
        "file": str(summary.path),
        "name": summary.name,
        "architecture": summary.architecture,
        "parameters": summary.parameters,
        "quantisation": summary.quantisation,
        "size": size_text(summary.size),
        "context": f"{summary.context:,} tokens" if summary.context else "",
        "template": summary.family,
        "images": choice.text,
        "memory": _memory_text(summary, context_size, fit.context),
        "gpu": fit.text if fit.demand.gpus else "",
    }
    show_rows(rows | plan_rows(header, config.llamacpp))


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
    if not sys.stderr.isatty():  # a log has no use for bars
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    try:
        if provider:
            _ollama(provider).pull(name)
            return
        from shepherd.catalog.hub import pull as pull_model  # imports huggingface_hub

        directory = loaded_config(context).llamacpp.models_path
        path = pull_model(name, directory, note)
        typer.echo(str(path))
        note(f"`shepherd --model {path.relative_to(directory)}` talks to it.")
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


def _ollama(provider: str) -> "OllamaModels":
    """The same commands for the models of a provider."""
    from shepherd.cli.commands.model_ollama import OllamaModels  # imports httpx

    return OllamaModels(provider)


def _file_line(summary: "ModelSummary") -> str:
    """A model file in one line, without its name."""
    from shepherd.backends.llamacpp.native.devices import available_memory

    needed_bytes = summary.needs(min(summary.context, LISTED_CONTEXT))
    context = f"{summary.context:,} tokens" if summary.context else "?"
    parts = [
        f"{size_text(summary.size):>9}",
        f"{summary.architecture:<10}",
        f"{summary.quantisation:<7}",
        f"{context:>15}",
        f"{summary.family:<8}",
        "fits" if needed_bytes <= available_memory() else "too large for the memory",
    ]
    return "  ".join(parts).rstrip()


def _memory_text(summary: "ModelSummary", context: int, fitted: int) -> str:
    """The memory that a model file needs with this context, and whether it is available.

    `fitted` is the context in tokens with which it is loaded if the settings leave that open.
    """
    from shepherd.backends.llamacpp.native.devices import available_memory

    available = available_memory()
    needed = summary.needs(context)
    text = f"about {size_text(needed)} with {context:,} tokens of context"
    if needed <= available:
        return f"{text}; fits ({size_text(available)} are free)"
    if 0 < fitted < context:
        return f"{text}; {size_text(available)} are free: it loads with {fitted:,} tokens"
    bytes_for_tokens = available - summary.size
    tokens = bytes_for_tokens // summary.cache_bytes if summary.cache_bytes else 0
    if tokens > 0:
        fitting = tokens // MIN_CONTEXT * MIN_CONTEXT  # llama.cpp rounds up to such multiples
        return f"{text}; of {size_text(available)} free: fits with --context-size {fitting}"
    return f"{text}; too large: {size_text(available)} are free"
