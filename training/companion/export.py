"""Writes an adapter as GGUF, for `llamacpp.lora`."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

NAME = "Companion"
DESCRIPTION = "Shepherd's tools for SmolLM2-135M-Instruct."


def write_adapter(
    path: Path, matrices: Mapping[str, np.ndarray], alpha: float, architecture: str = "llama"
) -> int:
    """Writes `path` whole or not at all, in half precision; returns its size in bytes.

    `matrices` are named `TENSOR.lora_a` and `TENSOR.lora_b`.
    """
    temporary = path.with_suffix(".tmp")
    writer = gguf.GGUFWriter(temporary, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    writer.add_name(NAME)
    writer.add_description(DESCRIPTION)
    writer.add_license("Apache-2.0")
    for name, matrix in matrices.items():
        writer.add_tensor(name, np.ascontiguousarray(matrix, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.replace(path)
    return path.stat().st_size
