"""`shepherd model`: the model files on this machine, and getting more."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from shepherd.cli.repl.clean import clean
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.errors import ModelLoadError
from shepherd.models import BUILTIN_NAME, builtin_model

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.native.summary import ModelSummary

GIB, MIB = 2**30, 2**20

model = typer.Typer(name="model", help="Model files on this machine.", no_args_is_help=True)


@model.command("list")
def list_models(context: typer.Context) -> None:
    """The built-in model and the GGUF files of the models directory."""
    from shepherd.backends.llamacpp.native.locate import available_models
    from shepherd.backends.llamacpp.native.summary import summarise

    directory = _models_dir(_config(context))
    files = available_models(directory) if directory.is_dir() else []
    names = [BUILTIN_NAME, *(str(path.relative_to(directory)) for path in files)]
    width = max(len(name) for name in names)
    for name, path in zip(names, [builtin_model(), *files], strict=True):
        try:
            text = _line(summarise(path))
        except ModelLoadError as error:
            text = str(error)
        typer.echo(clean(f"{name:<{width}}  {text}"))
    if not files:
        sys.stderr.write(
            f"No models in {directory} yet; `shepherd model pull OWNER/NAME` gets one.\n"
        )


@model.command("info")
def info(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A model as `--model` takes it.")],
) -> None:
    """What a model file is, and whether it fits into this machine's memory."""
    from shepherd.backends.llamacpp.native.locate import locate_model
    from shepherd.backends.llamacpp.native.summary import summarise

    config = _config(context)
    directory = _models_dir(config)
    path = builtin_model() if name == BUILTIN_NAME else locate_model(name, directory)
    found = summarise(path)
    size = config.llamacpp.context_size or found.context
    rows = {
        "file": str(found.path),
        "name": found.name,
        "architecture": found.architecture,
        "parameters": found.parameters,
        "quantisation": found.quantisation,
        "size": _bytes(found.size),
        "context": f"{found.context:,} tokens" if found.context else "",
        "template": found.family,
        "memory": _memory(found, size),
    }
    for key, text in rows.items():
        if text:
            typer.echo(clean(f"{key:<13} {text}"))


@model.command("pull")
def pull(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="OWNER/NAME[:QUANT|/FILE]", help="A model on Hugging Face.")
    ],
) -> None:
    """Download a model into the models directory; goes on where it was stopped."""
    from shepherd.backends.hub import pull as pull_model  # loads huggingface_hub

    _quiet_unless_seen()
    directory = _models_dir(_config(context))
    try:
        path = pull_model(name, directory, _tell)
    except KeyboardInterrupt:
        _tell("Stopped; the same command goes on from here.")
        raise
    typer.echo(str(path))
    _tell(f"`shepherd --model {path.relative_to(directory)}` talks to it.")


def _line(found: "ModelSummary") -> str:
    context = f"{found.context:,} tokens" if found.context else "?"
    parts = [
        f"{_bytes(found.size):>9}",
        f"{found.architecture:<10}",
        f"{found.quantisation:<7}",
        f"{context:>15}",
        f"{found.family:<8}",
        _fits(found, min(found.context, 8192)),
    ]
    return "  ".join(parts).rstrip()


def _fits(found: "ModelSummary", context: int) -> str:
    from shepherd.backends.llamacpp.cache.host_memory import available_memory

    return "fits" if found.needs(context) <= available_memory() else "too large for the memory"


def _memory(found: "ModelSummary", context: int) -> str:
    from shepherd.backends.llamacpp.cache.host_memory import available_memory

    available = available_memory()
    needed = found.needs(context)
    text = f"about {_bytes(needed)} with {context:,} tokens of context"
    if needed <= available:
        return f"{text}; fits ({_bytes(available)} are free)"
    room = (available - found.size) // found.cache_bytes if found.cache_bytes else 0
    if room > 0:
        return f"{text}; of {_bytes(available)} free: fits with --context-size {room // 256 * 256}"
    return f"{text}; too large: {_bytes(available)} are free"


def _bytes(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _quiet_unless_seen() -> None:
    """No progress bars where nobody sees them."""
    if not sys.stderr.isatty():
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _models_dir(config: Config) -> Path:
    return Path(config.llamacpp.models_dir).expanduser()


def _config(context: typer.Context) -> Config:
    overrides = cast(Mapping[str, object], context.obj)
    return load_config(Path.cwd(), os.environ, overrides)


def _tell(text: str) -> None:
    sys.stderr.write(f"{clean(text)}\n")
