"""The models of a server as Ollama lists them."""

import hashlib
from datetime import UTC, datetime

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.server.models import Models

VERSION = "0.13.0"
"""The version of Ollama whose API this is; clients refuse to talk to old ones."""

_LATEST = ":latest"
_NEVER = "9999-12-31T23:59:59Z"
_FAMILY = "shepherd"


def plain_name(name: str, models: Models) -> str:
    """The name of a model as the server lists it, without the tag that Ollama's clients add."""
    listed = {info.id for info in models.listed()}
    return name if name in listed else name.removesuffix(_LATEST)


def find_model(name: str, models: Models) -> ModelInfo:
    """The model of that name; raises ApiError if there is none."""
    plain = plain_name(name, models)
    for info in models.listed():
        if info.id == plain:
            return info
    raise ApiError(404, f"model '{name}' not found", "model_not_found", "model")


def listed_model(info: ModelInfo, started: int) -> JsonObject:
    """The entry of `/api/tags`; `started` is the server's start as a Unix time."""
    return _entry(info) | {"modified_at": _time(started)}


def running_model(info: ModelInfo) -> JsonObject:
    """The entry of `/api/ps`: the model stays loaded as long as the server runs."""
    return _entry(info) | {
        "expires_at": _NEVER,
        "size_vram": 0,
        "context_length": info.context_size,
    }


def shown_model(info: ModelInfo, started: int) -> JsonObject:
    """The answer of `/api/show`; what the server does not know of a model is empty.

    Every model takes tools and `think`; one that can't reason answers without.
    """
    size = {f"{_FAMILY}.context_length": info.context_size} if info.context_size else {}
    capabilities = ["completion", "tools", "thinking", *(["vision"] if info.vision else [])]
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": _details(info),
        "model_info": {"general.architecture": _FAMILY, "general.basename": info.id, **size},
        "capabilities": capabilities,
        "modified_at": _time(started),
    }


def _entry(info: ModelInfo) -> JsonObject:
    """The name twice, a digest of it, and no size, which the server does not know."""
    digest = hashlib.sha256(info.id.encode("utf-8", "replace")).hexdigest()
    details = _details(info)
    return {"name": info.id, "model": info.id, "size": 0, "digest": digest, "details": details}


def _details(info: ModelInfo) -> JsonObject:
    return {
        "parent_model": "",
        "format": "gguf" if info.backend == "llamacpp" else info.backend,
        "family": _FAMILY,
        "families": [_FAMILY],
        "parameter_size": "",
        "quantization_level": "",
    }


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
