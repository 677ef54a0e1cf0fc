"""Open models that call tools well, from a table of facts with their sources; opens no model."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.resources import files

import msgspec
from msgspec import Struct

PACKAGED = "local_models.toml"


class LocalModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of the table; all of them call tools.

    `repository` has its GGUF files, as OWNER/NAME on the hub. `quants` are the sizes of their
    quantisations in GiB as published, 0 if that is not known. `parameters` and `active` are in
    billions; only a mixture of experts has `active` ones. `gguf` are values of the header by their
    names without the architecture. A `draft` has the same quantisations with layers that predict
    tokens (MTP), as OWNER/NAME on the hub. `sources` tell where the facts are from.
    """

    name: str
    aliases: tuple[str, ...] = ()
    repository: str
    quants: dict[str, float]
    parameters: float
    active: float = 0
    architecture: str
    vocabulary: int
    tied: bool = False
    gguf: dict[str, int | list[int]]
    thinking: bool = False
    images: bool = False
    mtp: bool = False
    draft: str = ""
    licence: str
    licence_url: str
    released: date
    sources: tuple[str, ...]

    def size(self, quant: str) -> int:
        """The bytes of a quantisation: as published, else from the bits of its weights."""
        if published := self.quants[quant]:
            return round(published * 2**30)
        return round(self.parameters * 1e9 * _table().bits[quant] / 8)


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The file's contents: bits of a weight by quantisation, and GB/s by the name of a GPU."""

    sources: dict[str, str]
    bits: dict[str, float]
    bandwidth: dict[str, float]
    model: tuple[LocalModel, ...]


def local_models() -> Sequence[LocalModel]:
    """All models of the table, the smallest first."""
    return _table().model


def find_local_model(name: str) -> LocalModel | None:
    """The model of a name, an alias or a repository, in any case; None if there is none."""
    for model in local_models():
        names = (model.name, *model.aliases, model.repository)
        if name.lower() in (text.lower() for text in names):
            return model
    return None


def gpu_bandwidths() -> Mapping[str, float]:
    """GB per second that GPUs read from their own memory by their data sheets, by name."""
    return _table().bandwidth


@functools.cache
def _table() -> _Table:
    """The table of the package."""
    text = (files("shepherd.config") / PACKAGED).read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table)
