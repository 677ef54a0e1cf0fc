"""`shepherd model pick`: which open models this machine can run well."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from shepherd.catalog.local_models import find_local_model
from shepherd.catalog.model_files import size_text
from shepherd.cli.commands.arguments import Json
from shepherd.cli.commands.models.fit import header_rows
from shepherd.cli.commands.output import note, show_table
from shepherd.cli.request import loaded_config
from shepherd.config.llamacpp import LlamaCppSection

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.native.gguf import GgufHeader
    from shepherd.backends.llamacpp.native.picking import Machine, Pick

_LISTED = 12
_ON_HUB = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+|/[\w./-]+\.gguf)?")
_HEAD = ("model", "quant", "download", "context", "in q8_0", "writes", "reads", "licence")


def pick(
    context: typer.Context,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="List the models that do not fit or are slow, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List open models that call tools well and suit this machine, the best ones first.

    Each is the largest quantisation that fits beside a context for an agent, and writes fast
    enough. Nothing goes over the network; the first time, speeds are measured in some seconds.
    """
    from shepherd.backends.llamacpp.native.picking import picks, this_machine

    settings = loaded_config(context).llamacpp
    machine = this_machine(settings)
    every = picks(settings, machine)
    room = _free_disk(settings.models_path)
    if as_json:
        rows = [_numbers(each, room) for each in every]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    chosen = every if everything else [each for each in every if each.suits][:_LISTED]
    chosen = chosen or [each for each in every if each.plan.fits][:_LISTED]
    show_table([_HEAD, *map(_row, chosen)])
    note(_machine_text(machine))
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        note("Other programs compute now; beside them it is slower.")
    if not any(each.suits for each in every):
        note("None writes as fast as a person reads here.")
    large = [each for each in chosen if each.model.size(each.quant) > room]
    if large:
        note(f"The disk has {size_text(room)} left: too little for {len(large)} of them.")
    note("`shepherd model pull NAME` gets one; `--all` lists the others.")


def speed_rows(header: "GgufHeader", settings: LlamaCppSection) -> dict[str, str]:
    """What fits beside a model with this header, and how fast it would be."""
    from shepherd.backends.llamacpp.native.picking import make_plan, this_machine

    plan = make_plan(header, settings, this_machine(settings))
    if not plan.fits:
        return {"fits": "no: it is too large for this machine"}
    return {
        "fits": f"{plan.fit.context:,} tokens in f16, {plan.small.context:,} in q8_0",
        "speed": f"writes {_speed(plan.writing)}, reads {_speed(plan.reading)}, predicted",
    }


def best_pick(name: str, settings: LlamaCppSection) -> "Pick | None":
    """The model of the table that has the name, as it suits this machine; None if none has it."""
    from shepherd.backends.llamacpp.native.picking import best_quant, this_machine

    model = find_local_model(name)
    return model and best_quant(model, settings, this_machine(settings))


def absent_model(
    name: str, settings: LlamaCppSection
) -> "tuple[GgufHeader, dict[str, str]] | None":
    """The header of a model that is not here, and lines about it.

    It is one of the table, or OWNER/NAME:QUANT on the hub; None if the name can be neither. Raises
    ModelLoadError if the hub does not have it.
    """
    from shepherd.backends.llamacpp.native import gguf, picking
    from shepherd.catalog.hub import model_contents

    if pick := best_pick(name, settings):
        model, header = pick.model, picking.expected_header(pick.model, pick.quant)
        rows = header_rows(header, model.name, model.size(pick.quant))
        source = f"the table; exact with {pick.address}"
        licence = f"{model.licence} ({model.licence_url})"
        rows |= {"from": source, "quantisation": pick.quant, "licence": licence}
        return header, rows | {"drafts": model.draft and f"with {model.draft}:{pick.quant}"}
    if not _ON_HUB.fullmatch(name):
        return None
    files = model_contents(name)
    header = gguf.joined_header([gguf.remote_header(file.name, data) for file, data in files])
    first, size = files[0][0].name, sum(file.size for file, _data in files)
    return header, header_rows(header, name, size) | {"from": f"the header of {first}"}


def _row(pick: "Pick") -> Sequence[str]:
    """A model in one line."""
    model, plan = pick.model, pick.plan
    if not plan.fits:
        numbers = ("too large", "", "", "")
    else:
        contexts = (f"{plan.fit.context:,}", f"{plan.small.context:,}")
        numbers = (*contexts, _speed(plan.writing), _speed(plan.reading))
    about = "" if model.quants[pick.quant] else "~"
    size = f"{about}{size_text(model.size(pick.quant))}"
    return (model.name, pick.quant, size, *numbers, model.licence)


def _speed(tokens: float) -> str:
    """Tokens per second in few digits; "?" if that is not known."""
    return f"~{tokens:.{0 if tokens >= 10 else 1}f}/s" if tokens else "?"


def _machine_text(machine: "Machine") -> str:
    """What was found, in a sentence."""
    gpus = ", ".join(device.description for device in machine.devices)
    memory = f"{size_text(machine.memory.ram)} of memory are free"
    if gpus:
        memory += f", and {size_text(machine.memory.vram)} on {gpus}"
    return f"{memory}."


def _free_disk(directory: Path) -> int:
    """The free bytes of the disk that a directory is or would be on."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return shutil.disk_usage(existing).free


def _numbers(pick: "Pick", room: int) -> dict[str, object]:
    """A model as JSON: its facts, then sizes in bytes and tokens per second, null if unknown."""
    fit, plan, size = pick.plan.fit, pick.plan, pick.model.size(pick.quant)
    return msgspec.to_builtins(pick.model) | {
        "pull": pick.address,
        "quant": pick.quant,
        "tool_calls": True,
        "suits": pick.suits,
        "fits": plan.fits,
        "download": size,
        "download_is_published": bool(pick.model.quants[pick.quant]),
        "disk_has_room": size <= room,
        "context": fit.context,
        "context_q8_0": plan.small.context,
        "gpu_layers": fit.layers,
        "cpu_moe": fit.hosted,
        "memory": fit.memory.ram,
        "gpu_memory": fit.memory.vram,
        "writes_per_second": round(plan.writing, 2) or None,
        "reads_per_second": round(plan.reading, 2) or None,
    }
