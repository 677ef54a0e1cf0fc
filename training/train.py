"""Trains Pup: `python -m training.train`; run it again to go on from the last checkpoint.

Log: training/run/log.jsonl, one line each 20 steps. Checkpoint: training/run/checkpoint.pt.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training import tokenizer as vocabulary
from training.batches import TOKENS, Batch, Batches
from training.model import Pup, Shape

RUN = Path(__file__).parent / "run"
CHECKPOINT = "checkpoint.pt"
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
WARM_UP, DECAY = 50, 0.6  # steps; share of the run in which the rate falls
OTHER_SHARE = 0.25  # of the tokens that Pup does not write, this share is in the loss
# Row length -> share of the steps, from this share of the run on.
SCHEDULE: tuple[tuple[float, dict[int, float]], ...] = (
    (0.0, {256: 1.0}),
    (0.15, {256: 0.2, 512: 0.8}),
    (0.4, {256: 0.15, 512: 0.7, 1024: 0.15}),
    (0.6, {256: 0.12, 512: 0.5, 1024: 0.18, 2048: 0.12, 4096: 0.08}),
    (0.88, {256: 0.1, 512: 0.42, 1024: 0.16, 2048: 0.14, 4096: 0.18}),
)


def shares(done: float) -> dict[int, float]:
    """The row lengths at this share of the run."""
    return [lengths for start, lengths in SCHEDULE if start <= done][-1]


def rate(step: int, steps: int, decay: float = DECAY) -> float:
    """The learning rate's factor: warm-up, plateau, linear decay over this share of the steps."""
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, max(0.01, (steps - step) / (steps * decay)))


class Trainer:
    """The model, its optimizers and the loop's state."""

    def __init__(self, run: Path, steps: int, *, compiled: bool, decay: float = DECAY) -> None:
        torch.manual_seed(0)
        self.decay = decay
        self.run, self.steps, self.step, self.seconds = run, steps, 0, 0.0
        self.tokenizer = vocabulary.load()
        self.batches = Batches(self.tokenizer)
        self.model = Pup(Shape(vocabulary=self.tokenizer.get_vocab_size()))
        named = dict(self.model.named_parameters())
        matrices = [p for n, p in named.items() if p.dim() == 2 and n != "embedding.weight"]
        others = [p for n, p in named.items() if p.dim() != 2 or n == "embedding.weight"]
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01), MATRIX_RATE),
            (torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0),
             OTHER_RATE),
        ]  # fmt: skip
        if compiled:
            for block in self.model.blocks:
                block.compile(dynamic=False)
        print(f"{sum(p.numel() for p in named.values()) / 1e6:.2f} M parameters", flush=True)

    def load(self) -> bool:
        """Goes on from the checkpoint, if there is one."""
        path = self.run / CHECKPOINT
        if not path.exists():
            return False
        state: dict[str, Any] = torch.load(path)
        self.model.load_state_dict(state["model"])
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]
        return True

    def save(self) -> None:
        """Writes the checkpoint: the old one or the new one is there, never half of one."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self.optimizers],
            "step": self.step,
            "seconds": self.seconds,
        }
        temporary = self.run / "checkpoint.tmp"
        torch.save(state, temporary)
        temporary.replace(self.run / CHECKPOINT)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted loss, and the loss on what Pup writes."""
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.model.hidden(batch.tokens[:, :-1], batch.positions).flatten(0, 1)
        weights = batch.weights.flatten()
        own = weights == 1
        kept = own | ((weights > 0) & (torch.rand(weights.shape) < OTHER_SHARE))
        index = kept.nonzero().squeeze(1)
        with torch.autocast("cpu", torch.bfloat16):
            logits = functional.linear(hidden[index], self.model.embedding.weight)
        targets = batch.tokens[:, 1:].flatten()[index]
        losses = functional.cross_entropy(logits.float(), targets, reduction="none")
        own = own[index]
        weights = torch.where(own, 1.0, weights[index] / OTHER_SHARE)
        return (losses * weights).sum() / weights.sum(), losses.detach()[own].mean()

    def one(self) -> tuple[float, float]:
        """One step; returns the loss on Pup's own tokens and the whole loss."""
        batch = self.batches.batch(self.step, shares(self.step / self.steps))
        torch.manual_seed(self.step)
        factor = rate(self.step, self.steps, self.decay)
        loss, own = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, base in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = base * factor
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return own.item(), loss.item()

    def train(self) -> None:
        """All steps that are left."""
        own = 0.0
        while self.step < self.steps:
            start = time.monotonic()
            last, whole = self.one()
            taken = time.monotonic() - start
            self.seconds += taken
            if not math.isnan(last):  # Pup may write nothing in a batch
                own = last if self.step < 5 else 0.95 * own + 0.05 * last
            if self.step % 20 == 0:
                self._log(own, whole, TOKENS / taken)
            if self.step % 50 == 0 or self.step == self.steps:
                self.save()

    def _log(self, own: float, whole: float, speed: float) -> None:
        line = {
            "step": self.step,
            "own_loss": round(own, 4),
            "loss": round(whole, 4),
            "tokens": self.step * TOKENS,
            "tokens_per_second": round(speed),
            "seconds": round(self.seconds),
        }
        text = json.dumps(line)
        with (self.run / "log.jsonl").open("a") as log:
            log.write(text + "\n")
        print(text, flush=True)


def main() -> None:
    """Reads the arguments and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=25400)
    parser.add_argument("--decay", type=float, default=DECAY, help="share of the steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run", type=Path, default=RUN)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.run.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(args.run, args.steps, compiled=not args.no_compile, decay=args.decay)
    if trainer.load():
        print(f"going on from step {trainer.step}", flush=True)
    trainer.train()


if __name__ == "__main__":
    main()
