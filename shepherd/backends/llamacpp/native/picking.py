"""Which models of the table suit this machine, by the same plan that loads them."""

import re
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from shepherd.backends.base import Memory
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.devices import Device
from shepherd.backends.llamacpp.native.fitting import (
    AGENT_CONTEXTS,
    Fit,
    fit_model,
    free_memory,
    model_gpus,
)
from shepherd.backends.llamacpp.native.gguf import GgufHeader
from shepherd.backends.llamacpp.native.speed import (
    Speed,
    measured_speed,
    reading_speed,
    writing_speed,
)
from shepherd.catalog.local_models import LocalModel, local_models
from shepherd.config.llamacpp import LlamaCppSection

GOOD_CONTEXT, LEAST_CONTEXT = AGENT_CONTEXTS

FAST = 10.0
"""Tokens per second from which a person reads along."""

FEW_BITS = re.compile("Q[1-3]")

_MIX = re.compile("^UD-|_(XL|[SML])$")
"""The parts of a quantisation's name that are not in that of the type of most weights."""

_UNGATED = frozenset({"nemotron_h_moe"})
"""The architectures whose experts have two matrices."""

_GENERATION = timedelta(days=540)
"""Models that are older than the newest by this much are behind newer ones of a smaller size."""


class Machine(Struct, frozen=True):
    """What models can use here."""

    memory: Memory
    devices: Sequence[Device]
    speed: Speed


class Plan(Struct, frozen=True):
    """How a model would be loaded: with a cache in f16, and in q8_0. Speeds of 0 are not known."""

    fit: Fit
    small: Fit
    fits: bool
    writing: float
    reading: float


class Pick(Struct, frozen=True):
    """A model in the quantisation that suits the machine, or in its smallest one."""

    model: LocalModel
    quant: str
    plan: Plan

    @property
    def address(self) -> str:
        """OWNER/NAME:QUANT of its file on the hub."""
        return f"{self.model.repository}:{self.quant}"

    @property
    def has_few_bits(self) -> bool:
        """Whether its weights have less than four bits, with which they lose much."""
        return FEW_BITS.search(self.quant) is not None

    @property
    def suits(self) -> bool:
        """Whether it fits with the context that an agent needs, and writes as fast as one reads.

        Where the speed of GPUs is not known, what is on them alone is fast enough.
        """
        fit, writing = self.plan.fit, self.plan.writing
        is_fast = writing >= FAST or (not writing and fit.layers == fit.demand.all_layers)
        return self.plan.fits and is_fast

    @property
    def has_room(self) -> bool:
        """Whether the context is as large as an agent likes it, or as the model has it."""
        fit = self.plan.fit
        return fit.context >= min(GOOD_CONTEXT, fit.demand.sizes.trained_context)


def this_machine(settings: LlamaCppSection) -> Machine:
    """What is free now, and speeds, which are measured when they are asked for."""
    devices = model_gpus(settings)
    return Machine(free_memory(devices), devices, measured_speed(devices))


def make_plan(header: GgufHeader, settings: LlamaCppSection, machine: Machine) -> Plan:
    """How a model with this header would be loaded, and how fast it would be."""

    def fit(kind: str) -> Fit:
        # Which attention is faster is measured for each kind of heads when a model is loaded.
        changes = {"cache_type_k": kind, "cache_type_v": kind, "flash_attention": "on"}
        own = settings.model_copy(update=changes)
        return fit_model(header, own, limit=machine.memory, devices=machine.devices)

    whole, small = fit("f16"), fit("q8_0")
    least = min(LEAST_CONTEXT, whole.demand.context)
    fits = whole.memory.fits(machine.memory) and small.context >= least
    return Plan(
        whole, small, fits, writing_speed(whole, machine.speed), reading_speed(whole, machine.speed)
    )


def picks(settings: LlamaCppSection, machine: Machine) -> Sequence[Pick]:
    """All models of the table, those that suit best first: the largest ones.

    Behind them are those with few bits and older ones, then those that are slow or do not fit.
    """
    settings = settings.model_copy(update={"context_size": 0})
    every = [best_quant(model, settings, machine) for model in local_models()]
    newest = max(pick.model.released for pick in every)

    def rank(pick: Pick) -> tuple[bool, bool, bool, float]:
        is_recent = newest - pick.model.released < _GENERATION
        if not pick.suits:
            return False, pick.plan.fits, True, pick.plan.writing
        return True, True, is_recent and not pick.has_few_bits, pick.model.parameters

    return sorted(every, key=rank, reverse=True)


def best_quant(model: LocalModel, settings: LlamaCppSection, machine: Machine) -> Pick:
    """The largest quantisation that is fast with a good context, else what comes next to it.

    Weights of less than four bits lose much and gain little speed: only where no others fit.
    """
    sizes = sorted(model.quants, key=model.size, reverse=True)
    every = [
        Pick(model, quant, make_plan(expected_header(model, quant), settings, machine))
        for quant in sizes
    ]
    fitting = [pick for pick in every if pick.plan.fits] or every[-1:]
    fitting = [pick for pick in fitting if not pick.has_few_bits] or fitting[:1]
    fast = [pick for pick in fitting if pick.suits]
    good = [pick for pick in fast if pick.has_room]
    undivided = [pick for pick in good if not pick.plan.fit.is_divided]
    return next((picks[0] for picks in (undivided, good, fast) if picks), fitting[-1])


def expected_header(model: LocalModel, quant: str) -> GgufHeader:
    """What the header of a file will be like: its size, shared out by the numbers of weights."""
    values = model.gguf
    numbers = {key: value for key, value in values.items() if isinstance(value, int)}
    layers, width = numbers["block_count"], numbers["embedding_length"]
    rows = model.vocabulary * width
    lookup = model.vocabulary * numbers.get("embedding_length_per_layer_input", 0) * layers
    elements = {"token_embd.weight": rows, "per_layer_token_embd.weight": lookup}
    if not model.tied:
        elements["output.weight"] = rows
    if count := numbers.get("expert_count", 0):
        feeds = values.get("feed_forward_length")
        mixed = range(numbers.get("leading_dense_block_count", 0), layers)
        mixed = [i for i in mixed if feeds[i]] if isinstance(feeds, list) else mixed
        inner = numbers.get("moe_latent_size", width)
        tensor = inner * numbers["expert_feed_forward_length"] * count
        parts = ("up", "down") if model.architecture in _UNGATED else ("up", "down", "gate")
        elements |= {f"blk.{i}.ffn_{part}_exps.weight": tensor for i in mixed for part in parts}
    total = round(model.parameters * 1e9)
    rest = (total - sum(elements.values())) // layers
    elements |= {f"blk.{i}.other": rest for i in range(layers)}
    each = model.size(quant) / total
    named = {f"{model.architecture}.{key}": value for key, value in values.items()}
    named |= {"general.architecture": model.architecture}
    weights = {name: round(number * each) for name, number in elements.items()}
    kind: int = getattr(bindings(), f"GGML_TYPE_{_MIX.sub('', quant)}")
    return GgufHeader(named, 0, weights, model.vocabulary, kinds=dict.fromkeys(weights, kind))
