"""The models of a server as Ollama lists them."""

import hashlib
from datetime import UTC, datetime

from shepherd.backends.base import ModelInfo, ModelKind
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.server.models import Models, ServedModel, listed_id

VERSION = "0.13.0"
"""The version of Ollama whose API this is; clients refuse to talk to old ones."""

_LATEST = ":latest"
_NEVER = "9999-12-31T23:59:59Z"
_MAX_TIME = 253_402_300_799
_FAMILY = "shepherd"


def plain_name(name: str, models: Models) -> str:
    """The name of a model as the server lists it, without the tag that Ollama's clients add."""
    listed = {info.id for info in models.listed()}
    return name if name in listed else name.removesuffix(_LATEST)


def find_model(name: str, models: Models) -> ModelInfo:
    """The model of that name; raises ApiError if there is none."""
    plain = listed_id(plain_name(name, models), models)
    for info in models.listed():
        if info.id == plain:
            return info
    raise ApiError(404, f"model '{name}' not found", "model_not_found", "model")


def listed_model(model: ServedModel, started: int) -> JsonObject:
    """The entry of `/api/tags`; `started` is the server's start as a Unix time."""
    return _entry(model) | {"modified_at": _time(started)}


def running_model(model: ServedModel) -> JsonObject:
    """The entry of `/api/ps`: a model without a time to expire stays loaded.

    `size` is the memory that it takes, as far as it is known, and `size_vram` that of GPUs.
    """
    return _entry(model) | {
        "expires_at": _NEVER if model.expires is None else _time(min(model.expires, _MAX_TIME)),
        "size": model.memory.ram + model.memory.vram or model.size,
        "size_vram": model.memory.vram,
        "context_length": model.info.context_size,
    }


def model_details(info: ModelInfo, started: int) -> JsonObject:
    """The answer of `/api/show`; what the server does not know of a model is empty.

    Every model of texts takes tools and `think`; one that can't reason answers without.
    """
    size = {f"{_FAMILY}.context_length": info.context_size} if info.context_size else {}
    capabilities: list[str] = [info.kind]
    if info.kind is ModelKind.TEXT:
        capabilities += ["tools", "thinking", *(["vision"] if info.vision else [])]
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


def _entry(model: ServedModel) -> JsonObject:
    """The name twice, a digest of it, and the size of its files."""
    name, details = model.info.id, _details(model.info)
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    sizes = {"size": model.size, "digest": digest}
    return {"name": name, "model": name, **sizes, "details": details}


def _details(info: ModelInfo) -> JsonObject:
    return {
        "parent_model": "",
        "format": "gguf" if info.backend == "llamacpp" else info.backend,
        "family": _FAMILY,
        "families": [_FAMILY],
        "parameter_size": "",
        "quantization_level": "",
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
