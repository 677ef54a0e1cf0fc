"""Trains a small Qwen3.5 with a layer that predicts the token after the next one (MTP).

`python -m training.mtp --minutes 3 --out mtp.gguf` learns Pup's dialogues. `python -m bench.mtp`
shows with the file what such a layer gains. It is no model to talk to.

What a layer ahead costs beside the others depends on their number and size. `--weights mtp.gguf
--layers 24 --hidden 4096 --out large.gguf` makes a trained file larger. It adds layers and numbers
that compute as much as others and change nothing, so that the text stays the same.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from training import tokenizer as vocabulary
from training.batches import Batches
from training.export import Q8, add_vocabulary
from training.model import Norm, attend, rotate

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, LAYERS = 256, 4, 2, 64, 576, 4
KERNEL, INTERVAL, LENGTH, CONTEXT, ROPE_BASE, EPSILON = 4, 2, 256, 8192, 100_000.0, 1e-6
AHEAD = 3
"""Tokens that the layer learns to predict one after the other, each from its own last state."""
AHEAD_SHARE = 0.3
"""What it counts in the loss, beside the model's own prediction."""


class Delta(nn.Module):
    """A gated delta net: a state that forgets (`ssm_a`) and replaces what a key stood for."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attn_gate = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ssm_conv1d = nn.Parameter(torch.randn(3 * WIDTH, KERNEL) / KERNEL)
        self.ssm_dt = nn.Parameter(torch.full((HEADS,), -3.0))
        self.ssm_a = nn.Parameter(torch.zeros(HEADS))  # its logarithm
        self.ssm_beta = nn.Linear(WIDTH, HEADS, bias=False)
        self.ssm_alpha = nn.Linear(WIDTH, HEADS, bias=False)
        self.ssm_norm = Norm(HEAD, EPSILON)
        self.ssm_out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, _cos: Tensor, _sin: Tensor) -> Tensor:
        rows, length, _ = x.shape
        mixed = functional.pad(self.attn_qkv(x).transpose(1, 2), (KERNEL - 1, 0))
        kernel = self.ssm_conv1d.unsqueeze(1).to(mixed.dtype)
        mixed = functional.silu(functional.conv1d(mixed, kernel, groups=3 * WIDTH))
        mixed = mixed.float().view(rows, 3, HEADS, HEAD, length).transpose(3, 4)
        q, k, v = mixed.unbind(1)
        q, k = functional.normalize(q, dim=-1) * HEAD**-0.5, functional.normalize(k, dim=-1)
        beta = self.ssm_beta(x).float().sigmoid().transpose(1, 2).unsqueeze(-1)
        step = functional.softplus(self.ssm_alpha(x).float() + self.ssm_dt)
        out = delta_rule(q, k, v, (-self.ssm_a.exp() * step).transpose(1, 2), beta)
        out = self.ssm_norm(out.transpose(1, 2)).flatten(2)
        return self.ssm_out(out * functional.silu(self.attn_gate(x)))


def delta_rule(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor) -> Tensor:
    """The outputs of whole rows at once; `gate` is the logarithm of what a state keeps.

    A row of `news` is what a token adds to the state: its value without what the state had for its
    key. That depends on the news of all tokens before it, so it is the solution of a system.
    """
    total = gate.cumsum(-1)
    kept = (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()
    before = (beta * (k @ k.transpose(-1, -2)) * kept).tril(-1)
    news = torch.linalg.solve_triangular(
        before + torch.eye(k.shape[-2]), beta * v, upper=False, unitriangular=True
    )
    return ((q @ k.transpose(-1, -2)) * kept) @ news


class Attention(nn.Module):
    """Attention whose output has a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_q = nn.Linear(WIDTH, 2 * HEADS * HEAD, bias=False)
        self.attn_k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.attn_v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.attn_q_norm, self.attn_k_norm = Norm(HEAD, EPSILON), Norm(HEAD, EPSILON)
        self.attn_output = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, gate = self.attn_q(x).view(rows, length, HEADS, 2 * HEAD).chunk(2, -1)
        k = self.attn_k_norm(self.attn_k(x).view(rows, length, KV_HEADS, HEAD)).transpose(1, 2)
        v = self.attn_v(x).view(rows, length, KV_HEADS, HEAD).transpose(1, 2)
        q = rotate(self.attn_q_norm(q).transpose(1, 2), cos, sin).to(v.dtype)
        k = rotate(k, cos, sin).to(v.dtype).repeat_interleave(HEADS // KV_HEADS, 1)
        out = attend(q, k, v.repeat_interleave(HEADS // KV_HEADS, 1)).transpose(1, 2)
        return self.attn_output((out * gate.sigmoid()).flatten(2))


class Block(nn.Module):
    """One layer: a delta net or attention, then a gated feed-forward layer."""

    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.attn_norm, self.post_attention_norm = Norm(WIDTH, EPSILON), Norm(WIDTH, EPSILON)
        self.mixer = mixer
        self.ffn_gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.ffn_up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.ffn_down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.mixer(self.attn_norm(x), cos, sin)
        h = self.post_attention_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Ahead(Block):
    """The layer that reads a token with the state behind the one before it."""

    def __init__(self) -> None:
        super().__init__(Attention())
        self.eh_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.enorm, self.hnorm = Norm(WIDTH, EPSILON), Norm(WIDTH, EPSILON)
        self.shared_head_norm = Norm(WIDTH, EPSILON)

    def step(self, tokens: Tensor, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The states behind `tokens`, from the ones behind the tokens before."""
        x = self.eh_proj(torch.cat([self.enorm(tokens), self.hnorm(states)], -1))
        return self.shared_head_norm(self(x, cos, sin))


class Model(nn.Module):
    """The language model; input and output embeddings are tied."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.token_embd = nn.Embedding(size, WIDTH)
        mixers = (Attention() if (i + 1) % INTERVAL == 0 else Delta() for i in range(LAYERS))
        self.blk = nn.ModuleList([*(Block(mixer) for mixer in mixers), Ahead()])
        self.output_norm = Norm(WIDTH, EPSILON)
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and "conv" not in name:
                std = 0.02 if "embd" in name else weight.shape[1] ** -0.5
                nn.init.normal_(weight, std=std)
        steps = torch.arange(0, HEAD, 2) / HEAD
        angles = torch.outer(torch.arange(LENGTH).float(), ROPE_BASE**-steps)
        self.angles = (angles.cos(), angles.sin())

    def states(self, tokens: Tensor) -> list[Tensor]:
        """The states from which the next token is predicted, then those of the layer ahead."""
        embedded = self.token_embd(tokens)
        x = embedded
        *blocks, ahead = self.blk
        for block in blocks:
            x = block(x, *self.angles)
        found = [self.output_norm(x)]
        for _ in range(AHEAD):
            before = functional.pad(found[-1], (0, 0, 1, 0))[:, :-1]
            found.append(ahead.step(embedded, before, *self.angles))
        return found

    def loss(self, tokens: Tensor, weights: Tensor) -> list[Tensor]:
        """The loss of each prediction, the model's own first."""
        losses: list[Tensor] = []
        for place, state in enumerate(self.states(tokens[:, :-1])):
            with torch.autocast("cpu", torch.bfloat16):
                logits = functional.linear(state, self.token_embd.weight)
            # The first tokens have too few states before them.
            found, wanted = logits[:, place:].flatten(0, 1).float(), tokens[:, place + 1 :]
            each = functional.cross_entropy(found, wanted.flatten(), reduction="none")
            weight = weights[:, place:].flatten()
            losses.append((each * weight).sum() / weight.sum())
        return losses


def train(minutes: float, rows: int, threads: int) -> Model:
    """A model after so many minutes; the rate of learning falls in the second half."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    tokenizer = vocabulary.load()
    batches, model = Batches(tokenizer), Model(tokenizer.get_vocab_size())
    named = dict(model.named_parameters())
    matrices = [p for n, p in named.items() if p.dim() == 2 and "embd" not in n and "conv" not in n]
    others = [p for p in named.values() if all(p is not matrix for matrix in matrices)]
    optimizers = [
        (torch.optim.Muon(matrices, lr=0.02, weight_decay=0.01), 0.02),
        (torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), weight_decay=0), 3e-3),
    ]
    started, step, done = time.monotonic(), 0, 0.0
    while done < 1:
        batch = batches.batch(step, {LENGTH: 1.0})
        with torch.autocast("cpu", torch.bfloat16):
            own, *ahead = model.loss(batch.tokens[:rows], batch.weights[:rows])
        (own + AHEAD_SHARE * torch.stack(ahead).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 20, max(0.02, 2 - 2 * done))
            optimizer.step()
            optimizer.zero_grad()
        done, step = (time.monotonic() - started) / (60 * minutes), step + 1
        if step % 20 == 0 or done >= 1:
            parts = ", ".join(f"{loss.item():.3f}" for loss in (own, *ahead))
            print(f"step {step}, {100 * done:.0f} %, losses {parts}", flush=True)
    return model


Weights = Mapping[str, NDArray[np.float32]]
"""By their names in GGUF."""


def weights_of(model: Model) -> Weights:
    """The weights of a model that was trained."""
    weights = {name: weight.float() for name, weight in model.state_dict().items()}
    return {
        tensor_name(name): (-weight.exp() if name.endswith("ssm_a") else weight).numpy()
        for name, weight in weights.items()
    }


def weights_in(path: Path) -> Weights:
    """The weights in a file."""
    tensors = gguf.GGUFReader(path).tensors
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in tensors}


def grown(weights: Weights, layers: int, hidden: int) -> Weights:
    """The same model with more layers and wider feed-forward layers, which add nothing."""
    wide: dict[str, NDArray[np.float32]] = {}
    for name, array in weights.items():
        more = hidden - HIDDEN
        if "ffn_gate" in name or "ffn_up" in name:
            wide[name] = np.pad(array, ((0, more), (0, 0)))
        else:
            wide[name] = np.pad(array, ((0, 0), (0, more))) if "ffn_down" in name else array
    ahead, result = f"blk.{LAYERS}.", dict[str, NDArray[np.float32]]()
    for name, array in wide.items():
        result[name.replace(ahead, f"blk.{layers}.")] = array
    for layer in range(LAYERS, layers):
        like = f"blk.{layer % INTERVAL}."
        for name, array in wide.items():
            if name.startswith(like):
                ends = name.split(".")[2] in ("ffn_down", "attn_output", "ssm_out")
                result[name.replace(like, f"blk.{layer}.")] = array * 0 if ends else array
    return result


def export(weights: Weights, layers: int, hidden: int, out: Path) -> None:
    """Write a model as GGUF."""
    writer = gguf.GGUFWriter(out, "qwen35")
    writer.add_name("MTP trial")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers + 1)
    writer.add_nextn_predict_layers(1)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_full_attention_interval(INTERVAL)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(WIDTH)
    writer.add_ssm_state_size(HEAD)
    writer.add_ssm_time_step_rank(HEADS)
    writer.add_ssm_group_count(HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    add_vocabulary(writer)
    for name, array in weights.items():
        if array.ndim == 2 and array.shape[0] > HEADS and "conv" not in name:
            writer.add_tensor(name, gguf.quants.quantize(array, Q8), raw_dtype=Q8)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor_name(name: str) -> str:
    """GGUF's name of a parameter."""
    name = name.replace(".mixer", "").replace(".scale", ".weight")
    for part in ("eh_proj", "enorm", "hnorm", "shared_head_norm"):
        name = name.replace(f".{part}", f".nextn.{part}")
    if name.endswith("ssm_a"):
        return name
    if name.endswith("ssm_dt"):
        return f"{name}.bias"
    return name if name.endswith(".weight") else f"{name}.weight"


def main() -> None:
    """Reads the arguments, trains and exports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--rows", type=int, default=16, help=f"of {LENGTH} tokens in a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", type=Path, help="a file of an earlier training, instead")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--hidden", type=int, default=HIDDEN)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.weights:
        weights = weights_in(args.weights)
    else:
        weights = weights_of(train(args.minutes, args.rows, args.threads))
    export(grown(weights, args.layers, args.hidden), args.layers, args.hidden, args.out)


if __name__ == "__main__":
    main()
