"""Files of models in GGUF: what the header says, and whether the file is whole."""

import mmap
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, structs

from shepherd.errors import ModelLoadError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""`struct` codes by the file's value types."""

_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32
_MAX_COUNT = 1 << 24
_MAX_VALUES = 1 << 16
_MAX_TENSORS = 1 << 20
_MAX_DIMENSIONS = 4
MAX_LAYERS = 1024
_MAX_NUMBER = 1 << 40
"""The largest whole number that means something: a length, a width or a count."""
_FIRST_BYTES, _MAX_HEADER = 1 << 21, 1 << 27
"""Bytes of a file elsewhere that are read at first, and at most; most headers have 6 to 12 MB."""
_MAX_TEXT = 1 << 26
"""Bytes of all texts of a header that are kept."""
_TOKENS = "tokenizer.ggml.tokens"
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf$")

BLOCKS: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66),
    39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Elements and bytes of a block by ggml type; other types count as empty."""


class GgufHeader(Struct, frozen=True):
    """The contents of a header; `needs` is the minimum size of the file in bytes.

    `weights` are the bytes of each tensor by name, and `kinds` their types by ggml's number.
    `vocabulary` is the number of tokens, and `length` that of the bytes. The header of a split
    model has the tensors of all parts.
    """

    values: dict[str, Any]
    needs: int
    weights: Mapping[str, int]
    vocabulary: int = 0
    length: int = 0
    kinds: Mapping[str, int] = {}


def check_model_file(path: Path) -> GgufHeader:
    """Check all files of a model; raises ModelLoadError."""
    header = read_header(path)
    part = _PART.match(path.name)
    if part is None:
        return header
    parts = [header]
    stem, number, total = part["stem"], int(part["number"]), int(part["total"])
    if number != 1:
        raise ModelLoadError(f"{path} is a later part of a split model; name its first part.")
    for i in range(2, total + 1):
        other = path.with_name(f"{stem}-{i:05}-of-{total:05}.gguf")
        if not other.is_file():
            raise ModelLoadError(f"{path} is split into {total} parts, {other.name} is missing.")
        parts.append(read_header(other))
    return joined_header(parts)


def joined_header(parts: Sequence[GgufHeader]) -> GgufHeader:
    """The first part's header with the tensors of all parts."""
    weights: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for part in parts:
        weights |= part.weights
        kinds |= part.kinds
    return structs.replace(parts[0], weights=weights, kinds=kinds)


def remote_header(name: str, pieces: Iterable[bytes]) -> GgufHeader:
    """The header of a file elsewhere, read as far as needed. Raises ModelLoadError."""
    data, enough = bytearray(), _FIRST_BYTES
    for piece in chain(pieces, [b""]):  # nothing is the end of the file
        data += piece
        if piece and len(data) < enough:
            continue
        try:
            return _Reader(bytes(data)).header()
        except KeyError as error:
            raise ModelLoadError(f"{name} has a type of values that is not known.") from error
        except (struct.error, ValueError, OverflowError):
            if len(data) >= _MAX_HEADER or not data.startswith(_MAGIC):
                break
        enough = 2 * len(data)
    raise ModelLoadError(f"{name} has no header of a GGUF model.")


def read_header(path: Path) -> GgufHeader:
    """Read the header of one file, and check that the file has all that it announces."""
    if path.is_dir():
        raise ModelLoadError(f"{path} is a directory, not a GGUF model.")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                what = "empty" if size == 0 else "not a GGUF model"
                raise ModelLoadError(f"{path} is {what}.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Reader(data).header()
    except FileNotFoundError:
        raise ModelLoadError(f"There is no model file {path}.") from None
    except OSError as error:
        raise ModelLoadError(f"{path} can't be read: {error.strerror}.") from error
    except (struct.error, ValueError, KeyError, OverflowError) as error:
        raise ModelLoadError(
            f"{path} is damaged or cut off: its header can't be read. Download it again."
        ) from error
    if header.needs > size:
        raise ModelLoadError(
            f"{path} is cut off: it has {size:,} of at least {header.needs:,} bytes. "
            "Download it again."
        )
    return header


class _Reader:
    """Reads a header from its beginning to its end, in this machine's order of bytes."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("not a GGUF model")
        self._data = data
        self._at = len(_MAGIC)
        self._kinds: dict[str, int] = {}
        self._texts = 0
        """The bytes of all texts so far."""
        self._array_length = 0
        """That of the last array which was skipped."""

    def header(self) -> GgufHeader:
        """Read the whole header.

        Raises struct.error or ValueError if it is damaged, and KeyError for an unknown type.
        """
        if (version := self._scalar("I")) not in _VERSIONS:
            raise ValueError(f"GGUF version {version}")
        tensors, pairs = self._count(_MAX_TENSORS), self._count(_MAX_VALUES)
        values: dict[str, Any] = {}
        vocabulary = 0
        for _ in range(pairs):
            key = self._string()
            values[key] = self._value(self._scalar("I"))
            if key == _TOKENS:  # an array that was skipped, and only counted
                vocabulary = self._array_length
        weights: dict[str, int] = {}
        ends = [self._tensor_end(weights) for _ in range(tensors)]
        alignment = number_of(values, "general.alignment") or _DEFAULT_ALIGNMENT
        start = -(-self._at // alignment) * alignment  # rounded up
        needs = start + max(ends) if ends else self._at
        _check_numbers(values)
        return GgufHeader(values, needs, weights, vocabulary, start, self._kinds)

    def _scalar(self, code: str) -> Any:
        """The next number, by its code in `struct`."""
        (value,) = struct.unpack_from(f"={code}", self._data, self._at)
        self._at += struct.calcsize(f"={code}")
        return value

    def _count(self, limit: int = _MAX_COUNT) -> int:
        """A number of things; raises ValueError for one that only a damaged file has."""
        count: int = self._scalar("Q")
        if count > limit:
            raise ValueError(f"a count of {count}")
        return count

    def _string(self) -> str:
        """The next text, behind its length; raises ValueError if it has no end."""
        length: int = self._scalar("Q")
        end = self._at + length
        self._texts += length
        if end > len(self._data) or self._texts > _MAX_TEXT:
            raise ValueError("a string beyond the end")
        text = self._data[self._at : end].decode("utf-8", "replace")
        self._at = end
        return text

    def _value(self, kind: int) -> Any:
        """The next value of a type by GGUF's number; None for an array that is skipped."""
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._scalar(_SCALARS[kind])

    def _array(self) -> list[int] | None:
        """A short array of whole numbers, as of one for each layer; others are skipped."""
        kind = self._scalar("I")
        count = self._count()
        if kind == _STRING:
            for _ in range(count):  # each has 8 bytes with its length
                self._at += 8 + struct.unpack_from("=Q", self._data, self._at)[0]
        elif kind == _ARRAY:
            raise ValueError("an array of arrays")  # llama.cpp reads none either
        elif count <= MAX_LAYERS and _SCALARS[kind] not in "fd":
            return [int(self._scalar(_SCALARS[kind])) for _ in range(count)]
        else:
            self._at += count * struct.calcsize(f"={_SCALARS[kind]}")
        if self._at > len(self._data):
            raise ValueError("an array beyond the end")
        self._array_length = count
        return None

    def _tensor_end(self, weights: dict[str, int]) -> int:
        """Where a tensor's data ends, from the start of the data; its size goes into `weights`."""
        name = self._string()
        dimensions: int = self._scalar("I")
        if dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"{dimensions} dimensions")
        elements = 1
        for _ in range(dimensions):
            elements *= self._scalar("Q")
        kind: int = self._scalar("I")
        elements_per_block, block_bytes = BLOCKS.get(kind, (1, 0))
        offset: int = self._scalar("Q")
        weights[name] = elements // elements_per_block * block_bytes
        self._kinds[name] = kind
        return offset + weights[name]


def _check_numbers(values: Mapping[str, Any]) -> None:
    """Raise ValueError if a model's own numbers are far beyond those of any model."""
    architecture = f"{text_of(values, 'general.architecture')}."
    for key, value in values.items():
        limit = MAX_LAYERS if key.endswith(".block_count") else _MAX_NUMBER
        numbers = cast(list[Any], value if isinstance(value, list) else [value])
        if key.startswith(architecture) and any(isinstance(n, int) and n > limit for n in numbers):
            raise ValueError(f"{key} is {value}")


def text_of(values: Mapping[str, Any], key: str) -> str:
    """A text of a header; "" without it, or if it is something else."""
    value = values.get(key)
    return value if isinstance(value, str) else ""


def number_of(values: Mapping[str, Any], key: str, default: int = 0) -> int:
    """A whole number of a header; bools, which are numbers in Python, are none here."""
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
