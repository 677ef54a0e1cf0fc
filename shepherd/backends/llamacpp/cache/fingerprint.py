"""The identity of saved states: a model file, llama.cpp's build, the context's settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.catalog.model_files import parts_of

_HEADER = 1024 * 1024
_SAMPLES, _SAMPLE_BYTES = 32, 4096
_DIGITS = 12

_CONTEXT_FIELDS = (
    "n_ctx",
    "rope_scaling_type",
    "attention_type",
    "flash_attn_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
    "type_k",
    "type_v",
    "swa_full",
    "kv_unified",
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`place` stands for the model's path, `origin` for its content and llama.cpp's build.

    `context` stands for the context's settings. States with another context belong to other
    settings; states with another origin are useless.
    """

    place: str
    origin: str
    context: str

    @property
    def prefix(self) -> str:
        """The prefix of the file names."""
        return f"{self.place}-{self.origin}-{self.context}-"

    @property
    def digest(self) -> bytes:
        """32 bytes to store in the files."""
        return sha256(self.prefix.encode()).digest()

    def is_outdated(self, name: str) -> bool:
        """Whether a file belongs to an earlier model at the same path, or to an earlier build."""
        place, _, rest = name.partition("-")
        return place == self.place and not rest.startswith(f"{self.origin}-")


def fingerprint(model: Path, params: Any, adapters: Iterable[str] = ()) -> Fingerprint:
    """The fingerprint of a model file with context parameters and identities of adapters.

    Raises OSError if a file can't be read.
    """
    context = [f"{name}={getattr(params, name)}" for name in _CONTEXT_FIELDS]
    with model.open("rb") as file:
        content = sha256(file.read(_HEADER) + _samples(file, model.stat().st_size)).hexdigest()
    return Fingerprint(
        _short(str(model.resolve())),
        _short(content, *map(_dates, parts_of(model)), _build()),
        _short(*context, *adapters),
    )


def _samples(file: BinaryIO, size: int) -> bytes:
    """Samples of the weights: a file of the same size and date may have others."""
    pieces: list[bytes] = []
    for number in range(_SAMPLES):
        file.seek(size * number // _SAMPLES)
        pieces.append(file.read(_SAMPLE_BYTES))
    return b"".join(pieces)


def _dates(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _build() -> str:
    """The identity of llama.cpp's library; builds of one version may differ."""
    lib = bindings()
    library = Path(getattr(getattr(lib, "_lib", None), "_name", lib.__file__))
    return f"{_dates(library)} {lib.LLAMA_STATE_SEQ_VERSION}"


def _short(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]
