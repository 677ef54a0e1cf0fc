"""`shepherd model`: lists and downloads models of this machine and of Ollama servers."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shepherd.catalog.model_files import models_in, parts_of
from shepherd.cli.commands.models.fit import fit_rows, header_rows, plan_of
from shepherd.cli.commands.models.pick import absent_model, best_pick, pick, speed_rows
from shepherd.cli.commands.output import note, show, show_rows
from shepherd.cli.request import loaded_config
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.model_choice import model_from_user, with_provider
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, builtin_model

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.native.gguf import GgufHeader
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
    directory = loaded_config(context).llamacpp.models_path
    files = [model.path for model in models_in(directory)]
    names = [BUILTIN_NAME, *(str(path.relative_to(directory)) for path in files)]
    width = max(len(name) for name in names)
    for name, path in zip(names, [builtin_model(), *files], strict=True):
        try:
            text = _file_line(path)
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

    config = with_provider(loaded_config(context), "", model_from_user(name, Path.cwd()))
    settings = config.llamacpp
    try:
        plan = plan_of(config)
    except ModelLoadError:
        if (absent := absent_model(name, settings)) is None:
            raise
        header, rows = absent
        rows |= fit_rows(fit_model(header, settings))
    else:
        header, rows = plan.header, _rows(plan.header, plan.path) | plan.rows
    show_rows(rows | speed_rows(header, settings))


@model.command("pull")
def pull(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[:QUANT]|OWNER/NAME[:QUANT|/FILE]",
            help="A model of `shepherd model pick`, or one on Hugging Face; with --provider, as "
            "Ollama calls it.",
        ),
    ],
    *,
    use: Annotated[
        bool | None,
        typer.Option("--use/--no-use", help="Make it the default model; asks on a terminal."),
    ] = None,
    provider: OnServer = "",
) -> None:
    """Download a model into the models directory, or make an Ollama server fetch it.

    Its licence is kept beside it. An interrupted download continues where it stopped.
    """
    try:
        if provider:
            _ollama(provider).pull(name)
            return
        from shepherd.catalog.hub import pull as pull_model  # imports huggingface_hub
        from shepherd.cli.commands.model_ollama import PullBars

        config = loaded_config(context)
        directory = config.llamacpp.models_path
        with closing(PullBars()) as bars:
            images = config.llamacpp.projector != "none"
            picked = best_pick(name, config.llamacpp)
            address = picked.address if picked else name
            path = pull_model(address, directory, bars.show, images=images)
        typer.echo(str(path))
        _use(config, str(path.relative_to(directory)), use)
    except KeyboardInterrupt:
        note("Stopped; the same command goes on from here.")
        raise


def _use(config: Config, name: str, use: bool | None) -> None:  # noqa: FBT001 - as Typer gives it
    """Make a model the default one if the user says so, here or by an option."""
    if use is None and sys.stdin.isatty() and sys.stderr.isatty():
        use = typer.confirm("Make it the default model?", default=False, err=True)
    if not use:
        note(f"`shepherd --model {name}` talks to it.")
        return
    from shepherd.config.edit import set_value  # loads tomlkit

    file = Paths.from_env(os.environ).user_file
    set_value(file, "model.name", name)
    if config.model.provider:
        set_value(file, "model.provider", "")
    note(f"`shepherd` talks to it from now on (model.name in {file}).")


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


def _rows(header: "GgufHeader", path: Path) -> dict[str, str]:
    """What the header of a file here tells of its model."""
    return header_rows(header, path.stem, sum(part.stat().st_size for part in parts_of(path)))


def _file_line(path: Path) -> str:
    """A model file in one line, without its name; raises ModelLoadError."""
    from shepherd.backends.llamacpp.native.devices import available_memory
    from shepherd.backends.llamacpp.native.gguf import check_model_file
    from shepherd.backends.llamacpp.native.sizes import model_sizes

    header = check_model_file(path)
    rows, sizes = _rows(header, path), model_sizes(header, LlamaCppSection())
    trained = sizes.trained_context
    needed_bytes = sizes.weights + sum(sizes.cells) * min(trained, LISTED_CONTEXT)
    parts = [
        f"{rows['size']:>9}",
        f"{rows['architecture']:<10}",
        f"{rows['quantisation']:<7}",
        f"{f'{trained:,} tokens' if trained else '?':>15}",
        f"{rows['template']:<8}",
        "fits" if needed_bytes <= available_memory() else "too large for the memory",
    ]
    return "  ".join(parts).rstrip()
