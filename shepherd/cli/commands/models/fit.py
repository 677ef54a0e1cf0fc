"""How a local model is loaded here: the plan before that, and what it does afterwards."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import typer
from msgspec import Struct
from msgspec.structs import asdict

from shepherd import errors, events
from shepherd.catalog.model_files import locate_model, size_text
from shepherd.cli.commands.output import show_rows
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.messages import Message
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from shepherd.session import Session

if TYPE_CHECKING:
    from shepherd.backends.base import Memory
    from shepherd.backends.llamacpp.native.fitting import Demand, Fit
    from shepherd.backends.llamacpp.native.gguf import GgufHeader
    from shepherd.backends.llamacpp.vision.projector import ProjectorChoice

_READ, _WRITTEN = 512, 32
"""Tokens of the run that measures the speed, as far as the context has room."""

_FILE_TYPE = re.compile("LLAMA_FTYPE_(MOSTLY|ALL)_")


class Plan(Struct, frozen=True):
    """A model's file, its projector, and how much of it goes where."""

    path: Path
    header: "GgufHeader"
    choice: "ProjectorChoice"
    fit: "Fit"

    @property
    def rows(self) -> dict[str, str]:
        """The plan as lines for people."""
        return {"file": str(self.path), "images": self.choice.text, **fit_rows(self.fit)}


def header_rows(header: "GgufHeader", name: str, size: int) -> dict[str, str]:
    """What the header of a file of this name and size tells of its model."""
    from shepherd.backends.llamacpp.native.gguf import number_of, text_of
    from shepherd.backends.output.style import detect_style

    values = header.values
    template = text_of(values, "tokenizer.chat_template")
    return {
        "name": text_of(values, "general.name") or name,
        "architecture": text_of(values, "general.architecture"),
        "parameters": text_of(values, "general.size_label"),
        "quantisation": _quantisation(number_of(values, "general.file_type", -1)),
        "size": size_text(size),
        "template": detect_style(template).family,
    }


def _quantisation(number: int) -> str:
    """What llama.cpp calls a `general.file_type`, as Q4_K_M; "" if it has no name for it."""
    from shepherd.backends.llamacpp.native.bindings import bindings

    lib = bindings()
    names = {getattr(lib, name): name for name in dir(lib) if _FILE_TYPE.match(name)}
    return _FILE_TYPE.sub("", names.get(number, ""))


def plan_of(config: Config) -> Plan:
    """How the local model of the settings would be loaded now; raises ModelLoadError."""
    from shepherd.backends.llamacpp.native.fitting import fit_model
    from shepherd.backends.llamacpp.native.gguf import check_model_file
    from shepherd.backends.llamacpp.vision.projector import choose_projector

    name, directory = config.model.name, config.llamacpp.models_path
    is_builtin = name in ("", BUILTIN_NAME)
    path = builtin_model() if is_builtin else locate_model(name, directory, cwd=directory)
    header = check_model_file(path)
    choice = choose_projector(path, header, config.llamacpp)
    return Plan(path, header, choice, fit_model(header, config.llamacpp, beside=choice.bytes))


def show_plan(config: Config, providers: ProviderBook, *, as_json: bool) -> int:
    """Print how the model would be loaded; the exit code is 1 if it does not fit."""
    from shepherd.backends.opening import local_config

    if config.model.provider:
        provider = providers.pick(config.model.provider)
        if provider.type != "llamacpp":
            raise errors.UsageError(f"{provider.name} does not load its model in this process.")
        config = local_config(provider, config)
    plan = plan_of(config)
    if as_json:
        typer.echo(json.dumps(_numbers(plan), ensure_ascii=False, indent=2))
    else:
        show_rows(plan.rows)
    return 1 if plan.fit.shortage else 0


def _parts(fit: "Fit") -> Mapping[str, "Memory"]:
    """The memory by what takes it."""
    demand = fit.demand
    weights, cache = demand.memory(fit.layers, 0, fit.hosted), demand.cache(fit.layers, fit.context)
    return {"weights": weights, "cache": cache, "buffers": fit.memory - weights - cache}


def _numbers(plan: Plan) -> dict[str, object]:
    """The plan as JSON; sizes are in bytes, and null if they are unknown."""
    fit, demand = plan.fit, plan.fit.demand
    return {
        "model": str(plan.path),
        "layers": demand.all_layers,
        "gpu_layers": fit.layers,
        "cpu_moe": fit.hosted,
        "trained_context": demand.sizes.trained_context,
        "asked_context": demand.context,
        "context": fit.context,
        "cache_types": _cache_types(demand),
        "memory": {name: asdict(part) for name, part in _parts(fit).items()},
        "projector": plan.choice.bytes,
        "free": fit.limit and asdict(fit.limit),
        "fits": not fit.shortage,
        "notice": fit.notice or "",
    }


def _cache_types(demand: "Demand") -> list[str]:
    """The formats of keys and values in the cache; one that was left open is plain."""
    types = (demand.settings.cache_type_k, demand.settings.cache_type_v)
    return ["f16" if each == "auto" else each for each in types]


def fit_rows(fit: "Fit") -> dict[str, str]:
    """How much of a model goes where, as lines for people."""
    demand, own = fit.demand, fit.demand.sizes.trained_context
    layers = f"{fit.layers} of {demand.all_layers} on {demand.place}"
    trained = f"; the model was trained for {own:,}" if own and own != demand.context else ""

    def amount(side: str) -> str:
        sizes = {name: getattr(part, side) for name, part in _parts(fit).items()}
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items() if size)
        free = f"; {size_text(getattr(fit.limit, side))} are free" if fit.limit else ""
        return f"{size_text(sum(sizes.values()))} ({parts}){free}" if parts else ""

    return {
        "layers": layers if demand.gpus or not fit.limit else "all on the CPU",
        "experts": f"those of the first {fit.hosted} layers on the CPU" if fit.hosted else "",
        "context": f"{fit.context:,} of {demand.context:,} tokens{trained}",
        "cache": f"in {' and '.join(sorted({*_cache_types(demand)}))}",
        "memory": amount("ram"),
        "gpu memory": amount("vram"),
        "result": fit.notice or "It fits.",
    }


async def run_model(config: Config) -> tuple[str, list[str]]:
    """Load the model of the settings and run it: what it did, and the notices about it.

    Raises ModelLoadError and ConfigError.
    """
    from shepherd.backends.opening import open_local

    started, notices = perf_counter(), list[str]()
    terminal = config.terminal.model_copy(update={"save_sessions": False})
    backend = await open_local(config.model_copy(update={"terminal": terminal}))
    text = f"loaded in {perf_counter() - started:.1f} s"

    def listen(event: events.Event) -> bool:
        if isinstance(event, events.Notice):
            notices.append(event.text)
        return True

    try:
        model = backend.info.text_model
        if model is None:
            return f"{text}; it makes vectors", notices
        places = ", ".join(f"{count} layers on {name}" for name, count in model.file.places.items())
        sampling = Sampling(ignore_eos=True, temperature=0.0)
        words = min(_READ, backend.info.context_size // 4)
        stats = events.Stats()
        for word in ("one ", "two "):  # the first run reads the weights from the disk
            session = Session(messages=[Message.user(word * words)], sampling=sampling)
            stats = (await backend.generate_from_session(session, listen, _WRITTEN)).stats
        read = f"reads {stats.prefill_speed:,.0f} and writes {stats.decode_speed:,.1f} tokens/s"
        return f"{text}; {places}; {read}", notices
    finally:
        await backend.aclose()
