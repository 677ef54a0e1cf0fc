"""Pup's network: llama.cpp's `qwen3` architecture, small."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK, LONGEST_IN_BLOCKS = 128, 1024  # tokens


@dataclass(frozen=True)
class Shape:
    """The network's sizes."""

    vocabulary: int = 1536
    width: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    hidden: int = 576
    context: int = 8192
    rope_base: float = 100_000.0
    epsilon: float = 1e-6


class Norm(nn.Module):
    """RMS norm with a learned scale."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.scale


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of the two halves of each head."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of `(rows, heads, length, head)`.

    Short rows go block by block, each block over the keys that it may see: compiled, half the time
    of PyTorch's own kernel on a processor.
    """
    length, head = q.shape[-2:]
    if not BLOCK < length <= LONGEST_IN_BLOCKS:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out: list[Tensor] = []
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        scores = q[..., start:end, :] @ k[..., :end, :].transpose(-1, -2)
        hidden = torch.ones(end - start, end, dtype=torch.bool).triu(start + 1)
        scores = scores.masked_fill(hidden, float("-inf")) * head**-0.5
        seen = torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype)
        out.append(seen @ v[..., :end, :])
    return torch.cat(out, -2)


class Block(nn.Module):
    """Attention and a gated feed-forward layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        s = self.shape = shape
        self.attn_norm = Norm(s.width, s.epsilon)
        self.ffn_norm = Norm(s.width, s.epsilon)
        self.q_norm = Norm(s.head, s.epsilon)
        self.k_norm = Norm(s.head, s.epsilon)
        self.q = nn.Linear(s.width, s.heads * s.head, bias=False)
        self.k = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.v = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.out = nn.Linear(s.heads * s.head, s.width, bias=False)
        self.gate = nn.Linear(s.width, s.hidden, bias=False)
        self.up = nn.Linear(s.width, s.hidden, bias=False)
        self.down = nn.Linear(s.hidden, s.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        s = self.shape
        rows, length, _ = x.shape
        h = self.attn_norm(x)
        q = self.q_norm(self.q(h).view(rows, length, s.heads, s.head)).transpose(1, 2)
        k = self.k_norm(self.k(h).view(rows, length, s.kv_heads, s.head)).transpose(1, 2)
        v = self.v(h).view(rows, length, s.kv_heads, s.head).transpose(1, 2)
        group = s.heads // s.kv_heads
        q = rotate(q, cos, sin).to(v.dtype)
        k = rotate(k, cos, sin).to(v.dtype).repeat_interleave(group, 1)
        v = v.repeat_interleave(group, 1)
        y = attend(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, -1))
        h = self.ffn_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Pup(nn.Module):
    """The language model; input and output embeddings are tied."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width, shape.epsilon)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=_spread(name, parameter.shape[1]))
        steps = torch.arange(0, shape.head, 2) / shape.head
        angles = torch.outer(torch.arange(shape.context).float(), shape.rope_base**-steps)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def hidden(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The normed last layer; `positions` has the shape of `tokens`."""
        x = self.embedding(tokens)
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return functional.linear(self.hidden(tokens, positions), self.embedding.weight)


def _spread(name: str, inputs: int) -> float:
    if name.startswith("embedding"):
        return 0.02
    return (0.5 if name.endswith(("out.weight", "down.weight")) else 1.0) / math.sqrt(inputs)
