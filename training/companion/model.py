"""A llama out of a GGUF in PyTorch: frozen weights, and a trainable adapter beside each matrix."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

MATRICES = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


@dataclass(frozen=True)
class Shape:
    """The sizes that the file's metadata names."""

    layers: int
    heads: int
    kv_heads: int
    head: int
    rope_base: float
    epsilon: float

    @classmethod
    def of(cls, reader: gguf.GGUFReader) -> "Shape":
        """Raises KeyError if the file is not a llama."""

        def value(name: str, default: Any = None) -> Any:
            field = reader.get_field(f"llama.{name}")
            if field is None and default is None:
                raise KeyError(name)
            return field.contents() if field else default

        heads = int(value("attention.head_count"))
        return cls(
            int(value("block_count")),
            heads,
            int(value("attention.head_count_kv", heads)),
            int(value("embedding_length")) // heads,
            float(value("rope.freq_base", 10000.0)),
            float(value("attention.layer_norm_rms_epsilon")),
        )


class Adapted(nn.Module):
    """A frozen matrix, and a trainable product of rank `rank` that is added to it.

    `b` begins with zeros, so that the model begins unchanged.
    """

    weight: Tensor

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.a = nn.Parameter(torch.randn(rank, weight.shape[1]) / weight.shape[1] ** 0.5)
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        """The product with the sum of both."""
        low = functional.linear(functional.linear(x, self.a), self.b)
        return functional.linear(x, self.weight) + self.scale * low


class Block(nn.Module):
    """One layer."""

    norms: dict[str, Tensor]

    def __init__(
        self, shape: Shape, matrices: dict[str, Adapted], norms: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.shape, self.norms = shape, norms
        self.matrices = nn.ModuleDict(matrices)

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor) -> Tensor:
        """The layer's output for one row of vectors."""
        x = x + self._attention(self._norm(x, "attn_norm"), rotation, mask)
        y = self._norm(x, "ffn_norm")
        gated = functional.silu(self.matrices["ffn_gate"](y)) * self.matrices["ffn_up"](y)
        return x + self.matrices["ffn_down"](gated)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.norms[name], self.shape.epsilon)

    def _attention(self, x: Tensor, rotation: Tensor, mask: Tensor) -> Tensor:
        shape = self.shape
        q = rotated(self._heads(self.matrices["attn_q"](x)), rotation)
        k = rotated(self._heads(self.matrices["attn_k"](x)), rotation)
        v = self._heads(self.matrices["attn_v"](x))
        groups = shape.heads // shape.kv_heads
        k, v = (part.repeat_interleave(groups, dim=1) for part in (k.to(v.dtype), v))
        out = functional.scaled_dot_product_attention(q.to(v.dtype), k, v, attn_mask=mask)
        return self.matrices["attn_output"](out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.shape.head)).transpose(1, 2)


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """Heads with their positions: pairs of neighbours are rotated, as GGUF orders a llama's."""
    cos, sin = rotation
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Llama(nn.Module):
    """The model; only the adapter's matrices are parameters."""

    embedding: Tensor
    output: Tensor

    def __init__(self, path: Path, rank: int, alpha: float, dtype: torch.dtype) -> None:
        """Raises KeyError if the file is not a llama."""
        super().__init__()
        reader = gguf.GGUFReader(path)
        self.shape = shape = Shape.of(reader)
        self.dtype = dtype
        tensors = {tensor.name: tensor for tensor in reader.tensors}

        def read(name: str) -> Tensor:
            tensor = tensors[f"{name}.weight"]
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            return torch.from_numpy(np.array(values, dtype=np.float32))

        self.embedding = read("token_embd").to(dtype)
        self.output = read("output").to(dtype) if "output.weight" in tensors else self.embedding
        self.norm = read("output_norm")
        self.blocks = nn.ModuleList()
        for i in range(shape.layers):
            matrices = {
                name: Adapted(read(f"blk.{i}.{name}").to(dtype), rank, alpha) for name in MATRICES
            }
            norms = {name: read(f"blk.{i}.{name}") for name in ("attn_norm", "ffn_norm")}
            self.blocks.append(Block(shape, matrices, norms))

    def hidden(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """The last vectors of one row; `mask[i, j]`: position i sees position j."""
        half = torch.arange(0, self.shape.head, 2) / self.shape.head
        angles = positions[:, None] * self.shape.rope_base**-half
        rotation = torch.stack((angles.cos(), angles.sin()))
        x = self.embedding[tokens].float()[None]
        for block in self.blocks:
            x = block(x, rotation, mask)
        return functional.rms_norm(x[0], x.shape[-1:], self.norm, self.shape.epsilon)

    def logits(self, hidden: Tensor) -> Tensor:
        """The vocabulary's scores for these vectors."""
        return functional.linear(hidden.to(self.dtype), self.output).float()

    def matrices(self) -> dict[str, np.ndarray]:
        """The adapter's matrices under the names that llama.cpp gives them."""
        found: dict[str, np.ndarray] = {}
        for i, block in enumerate(self.blocks):
            for name in MATRICES:
                part = block.matrices[name]
                found[f"blk.{i}.{name}.weight.lora_a"] = part.a.detach().numpy()
                found[f"blk.{i}.{name}.weight.lora_b"] = part.b.detach().numpy()
        return found
