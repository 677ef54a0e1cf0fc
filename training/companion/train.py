"""Trains the adapter: `python -m training.companion.train --rows FILE --model GGUF --run FOLDER`.

Run it again to go on from the last checkpoint. The folder gets `train.log` with a line each step,
`checkpoint.pt`, and `adapter.gguf`, which is always complete.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.companion.export import write_adapter
from training.companion.model import Llama

RANK, ALPHA = 16, 32.0
WARM_UP, LOWEST = 8, 0.1  # steps; share of the rate that is left at the end


@dataclass(frozen=True)
class Row:
    """A beginning (branch 0) and the dialogues that follow it, each in its own branch."""

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    weights: list[int]  # 1 where the token is the model's own

    @classmethod
    def parse(cls, line: str) -> "Row":
        """The row in a line of JSON."""
        return cls(**json.loads(line))

    def mask(self) -> Tensor:
        """What each position sees: the beginning and its own branch, up to itself."""
        branch = torch.tensor(self.branches)
        same = (branch[:, None] == branch) | (branch == 0)
        return same & torch.ones_like(same).tril()

    def targets(self) -> tuple[Tensor, Tensor]:
        """The positions that predict the model's own tokens, and those tokens.

        A branch follows the beginning, so its first token is nobody's own.
        """
        own = [i for i, weight in enumerate(self.weights) if weight]
        return torch.tensor([i - 1 for i in own]), torch.tensor([self.tokens[i] for i in own])


def rate(step: int, steps: int) -> float:
    """The learning rate's factor: warm-up, then linear decay."""
    return min(1.0, (step + 1) / WARM_UP) * max(LOWEST, 1 - step / steps)


class Trainer:
    """The model, its optimizer and the step."""

    def __init__(self, model: Llama, run: Path, highest: float) -> None:
        self.model, self.run, self.highest = model, run, highest
        self.step = 0
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=highest, betas=(0.9, 0.99), weight_decay=0.0
        )

    def loss(self, row: Row) -> tuple[Tensor, int]:
        """The sum of the losses of the row's own tokens, and their number."""
        index, wanted = row.targets()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.model.dtype == torch.bfloat16):
            hidden = self.model.hidden(
                torch.tensor(row.tokens), torch.tensor(row.positions), row.mask()
            )
            logits = self.model.logits(hidden[index])
        return functional.cross_entropy(logits, wanted, reduction="sum"), len(wanted)

    def one(self, rows: list[Row], steps: int) -> float:
        """One step; returns the loss of a token."""
        whole = sum(sum(row.weights) for row in rows)
        total = 0.0
        for row in rows:
            loss, _ = self.loss(row)
            (loss / whole).backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.highest * rate(self.step, steps)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return total / whole

    def held_out(self, rows: list[Row]) -> float:
        """The loss of a token in rows that are not trained on."""
        with torch.no_grad():
            losses = [self.loss(row) for row in rows]
        return sum(loss.item() for loss, _ in losses) / sum(count for _, count in losses)

    def save(self) -> None:
        """Writes the checkpoint and the adapter, each whole or not at all."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        temporary = self.run / "checkpoint.tmp"
        torch.save(state, temporary)
        temporary.replace(self.run / "checkpoint.pt")
        write_adapter(self.run / "adapter.gguf", self.model.matrices(), ALPHA)

    def load(self) -> None:
        """Goes on from the checkpoint, if there is one."""
        path = self.run / "checkpoint.pt"
        if path.exists():
            state: dict[str, Any] = torch.load(path)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]


def rows_from(path: Path, start: int) -> Iterator[Row]:
    """The rows of a file from this number on, again from the first after the last."""
    lines = path.read_text().splitlines()
    while True:
        yield Row.parse(lines[start % len(lines)])
        start += 1


def train(trainer: Trainer, args: argparse.Namespace) -> None:
    """All steps that are left."""
    held = [Row.parse(line) for line in args.held_out.read_text().splitlines()]
    rows = rows_from(args.rows, trainer.step * args.batch)
    with (args.run / "train.log").open("a", buffering=1) as log:
        while trainer.step < args.steps:
            start = time.monotonic()
            loss = trainer.one(list(islice(rows, args.batch)), args.steps)
            taken = time.monotonic() - start
            line = f"step {trainer.step} loss {loss:.4f} seconds {taken:.1f}"
            if trainer.step % args.save == 0 or trainer.step == args.steps:
                trainer.save()
            if trainer.step % args.measure == 0 or trainer.step == args.steps:
                line += f" held out {trainer.held_out(held):.4f}"
            print(line, file=log)


def main() -> None:
    """Reads the arguments and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=2, help="rows of a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--save", type=int, default=5, help="steps from one checkpoint to the next")
    parser.add_argument("--measure", type=int, default=20, help="steps between held-out losses")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--float32", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.run.mkdir(parents=True, exist_ok=True)
    dtype = torch.float32 if args.float32 else torch.bfloat16
    trainer = Trainer(Llama(args.model, RANK, ALPHA, dtype), args.run, args.rate)
    trainer.load()
    train(trainer, args)


if __name__ == "__main__":
    main()
