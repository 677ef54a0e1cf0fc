"""A summary of a GGUF file, from its header."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.output.style import detect_style
from shepherd.catalog.model_files import parts_of

_QUANTS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
"""llama.cpp's names by `general.file_type`."""


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A model; `size` is in bytes and covers all files, `context` is in tokens.

    `cache_bytes` is the size of one token in the cache at f16. 0 means unknown.
    """

    path: Path
    name: str
    architecture: str
    size: int
    parameters: str
    quantisation: str
    context: int
    family: str
    cache_bytes: int

    def needs(self, context: int) -> int:
        """The approximate memory in bytes with `context` tokens of context."""
        return self.size + self.cache_bytes * context


def summarise(path: Path) -> ModelSummary:
    """The summary of the model whose first file is at `path`; raises ModelLoadError."""
    values = check_model_file(path).values
    architecture = _text(values, "general.architecture")
    return ModelSummary(
        path=path,
        name=_text(values, "general.name") or path.stem,
        architecture=architecture,
        size=sum(part.stat().st_size for part in parts_of(path)),
        parameters=_text(values, "general.size_label"),
        quantisation=_QUANTS.get(_number(values, "general.file_type", -1), ""),
        context=_number(values, f"{architecture}.context_length"),
        family=detect_style(_text(values, "tokenizer.chat_template")).family,
        cache_bytes=_cache_bytes(values, architecture),
    )


def _cache_bytes(values: dict[str, Any], architecture: str) -> int:
    def number(key: str) -> int:
        return _number(values, f"{architecture}.{key}")

    heads = number("attention.head_count")
    width = number("attention.key_length") or (number("embedding_length") // heads if heads else 0)
    shared = number("attention.head_count_kv") or heads
    return 4 * number("block_count") * shared * width


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""


def _number(values: dict[str, Any], key: str, default: int = 0) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
