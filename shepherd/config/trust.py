"""The settings that a project's file may change.

A project's file comes with code that others wrote. It takes effect as soon as a user enters the
directory. So it may change answers and appearance, and make permissions stricter. It must not run
code, open a port, reach the network, read any file or approve a tool call. All settings that are
not listed here are refused, including new ones.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from shepherd.config import layers, settings
from shepherd.config.section import ApproveMode, SandboxMode

UNRESTRICTED = frozenset(
    {
        "model.thinking",
        "model.system_message",
        "model.max_tokens",
        "model.max_rounds",
        "model.max_hints",
        "llamacpp.context_size",
        "llamacpp.gpu_layers",
        "llamacpp.cpu_moe",
        "llamacpp.flash_attention",
        "llamacpp.cache_type_k",
        "llamacpp.cache_type_v",
        "tools.output_bytes",
        "terminal.show_thinking",
        "terminal.code_theme",
    }
)
"""Settings that any file may set, in addition to all of `sampling`."""

ADDITIVE = frozenset({"tools.disabled", "plugins.disabled"})
"""Lists to which a project's file may add; it can't remove items of the user."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[A-Za-z0-9][\w.+-]*)*", re.ASCII)

STRICTNESS: Mapping[str, tuple[str, ...]] = {
    "permissions.approve": (
        ApproveMode.ALL,
        ApproveMode.AUTO,
        ApproveMode.EDITS,
        ApproveMode.ASK,
        ApproveMode.REVIEW,
        ApproveMode.NONE,
    ),
    "tools.sandbox": (SandboxMode.OFF, SandboxMode.AUTO, SandboxMode.REQUIRED),
}
"""Settings that a project's file may only make stricter, with their values, the strictest last."""


def admit(layer: layers.Layer, below: Mapping[str, object]) -> tuple[layers.Layer, tuple[str, ...]]:
    """The permitted part of a project's layer, and a warning for each other value.

    `below` holds the values in effect without this layer.
    """
    values: dict[str, object] = {}
    warnings: list[str] = []
    for key, value in layer.values.items():
        reason = _refusal(key, value, below)
        if reason is None:
            values[key] = value
            if key in ADDITIVE:
                own = cast(list[object], below.get(key) or [])
                values[key] = [*own, *cast(list[object], value)]
            continue
        where = layer.where(tuple(key.split(".")))
        warnings.append(f"{where}: {key} ignored: {reason}; set it in your own settings file")
    sources = {key: layer.sources[key] for key in values}
    return layers.Layer(layer.name, values, sources, layer.path, layer.text), tuple(warnings)


def _refusal(key: str, value: object, below: Mapping[str, object]) -> str | None:
    """Why a project's file may not set this value; None if it may."""
    if key in UNRESTRICTED | ADDITIVE or key.startswith("sampling."):
        return None
    if key in STRICTNESS:
        field = settings.find_field(key)
        default = None if field is None else field.default
        return _looser(STRICTNESS[key], value, below.get(key, default))
    check = _CHECKS.get(key)
    return check(value) if check else "a project's file may not set it"


def _looser(values: Sequence[str], value: object, current: object) -> str | None:
    """Why `value` may not replace `current`; the strictest of `values` is the last."""
    for mode in (value, current):
        if str(mode) not in values:  # plan mode
            return f'"{mode}" is neither stricter nor looser than the others'
    if values.index(str(value)) >= values.index(str(current)):
        return None
    return f'a project\'s file may not loosen it from "{current}"'


def _rules(value: object) -> str | None:
    """Why a project's file may not have these rules of permission; None if it may."""
    rules = cast(list[dict[str, object]], value)
    if all(rule["decision"] != "allow" for rule in rules):
        return None
    return "a project's file may only hold rules that ask or deny"


def _only_false(value: object) -> str | None:
    """Why a project's file may not switch something on; None if it switches it off."""
    return "a project's file may only switch it off" if value else None


def _model_name(value: object) -> str | None:
    """Why a project's file may not choose this model; a path could name any file."""
    if not _PLAIN_NAME.fullmatch(str(value)):
        return "a project's file may only name a model in your models directory"
    return None


_CHECKS: dict[str, Callable[[object], str | None]] = {
    "model.name": _model_name,
    "model.tools": _only_false,
    "permissions.rules": _rules,
    "tools.allow_private_hosts": _only_false,
    "tools.ask_providers": _only_false,
    "mcp.enabled": _only_false,
    "memory.enabled": _only_false,
    "knowledge.enabled": _only_false,
    "knowledge.skills": _only_false,
}
