"""Facts from a model's own files, read before it is loaded."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shepherd.errors import ModelLoadError
from shepherd.messages import JsonObject

CONFIG = "config.json"
GENERATION = "generation_config.json"
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")

Fetch = Callable[[str, str], Path | None]
"""Maps repository and file name to the file's path; None if the repository lacks the file."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Tokens of context (0 if unknown), tokens that end an answer, and whether it is an engine.

    An engine was built by `trtllm-build` for one kind of GPU; others are Hugging Face checkpoints.
    """

    context_size: int = 0
    ends: tuple[int, ...] = ()
    is_engine: bool = False


def read_facts(model: str, fetch: Fetch | None = None) -> ModelFacts:
    """The facts of a directory, or of a name on the hub; raises ModelLoadError.

    `fetch` downloads a file of the hub; the default is the real download.
    """
    config = _read(model, CONFIG, fetch or fetch_from_hub)
    if config is None:
        raise ModelLoadError(
            f"{model} is not a model for TensorRT-LLM: it has no {CONFIG}. Give a directory with a "
            "Hugging Face checkpoint or an engine, or a name on the hub (OWNER/NAME)."
        )
    built = _object(config.get("build_config"))
    if built:
        return ModelFacts(_whole(built.get("max_seq_len")), is_engine=True)
    generation = _read(model, GENERATION, fetch or fetch_from_hub) or {}
    text = _object(config.get("text_config"))
    ends = next(
        (result for part in (generation, config, text) if (result := _numbers(part))),
        (),
    )
    sizes = (_whole(part.get(key)) for part in (config, text) for key in _CONTEXT_KEYS)
    return ModelFacts(next((size for size in sizes if size), 0), ends)


def fetch_from_hub(repo: str, name: str) -> Path | None:
    """A file of a repository, from the hub or its cache; raises ModelLoadError."""
    import huggingface_hub
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    try:
        hub = cast(Any, huggingface_hub)  # its signature has unknown types
        return Path(str(hub.hf_hub_download(repo, name)))
    except HFValidationError as error:
        raise ModelLoadError(
            f"There is no directory {repo}, and it is not a name on the hub (OWNER/NAME) either."
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelLoadError(
            f"{repo} is not in the hub's cache, and the hub does not answer."
        ) from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ModelLoadError(f"{repo} can't be had from the hub: {reason}") from error


def _read(model: str, name: str, fetch: Fetch) -> JsonObject | None:
    folder = Path(model).expanduser()
    path = folder / name if folder.is_dir() else fetch(model, name)
    if path is None or not path.is_file():
        return None
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} can't be read: {error}") from error
    return _object(data)


def _object(value: object) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _numbers(part: JsonObject) -> tuple[int, ...]:
    value: object = part.get("eos_token_id")
    values = cast(list[object], value) if isinstance(value, list) else [value]
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
