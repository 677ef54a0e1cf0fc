"""Training batches: rows of one dialogue each, reproducible from the step's number."""

import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training import tokenizer as vocabulary
from training.dialogues import PRACTICE, SceneMaker, dialogue

TOKENS = 8192  # per step
CONTEXT = 8192


@dataclass(frozen=True)
class Batch:
    """Token ids, their positions, and each target's weight in the loss."""

    tokens: Tensor
    positions: Tensor
    weights: Tensor


class Batches:
    """Makes the batch of any step, given the share of each row length."""

    def __init__(self, tokenizer: Tokenizer, scenes: dict[SceneMaker, float] | None = None) -> None:
        self.tokenizer = tokenizer
        self.scenes = scenes or PRACTICE
        self.pad: int = tokenizer.token_to_id(vocabulary.PAD)

    def measure(self, text: str) -> int:
        """The number of tokens in `text`."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def row(self, seed: int, size: int, *, held: bool = False) -> tuple[list[int], list[float]]:
        """One dialogue's tokens and weights, `size + 1` at most."""
        made = dialogue(seed, self.measure, size, held=held, overfull=True, only=self.scenes)
        ids: list[int] = []
        weights: list[float] = []
        for text, weight in made.pieces():
            piece = self.tokenizer.encode(text, add_special_tokens=False).ids
            ids += piece
            weights += [weight] * len(piece)
        return ids[: size + 1], weights[: size + 1]

    def batch(self, step: int, shares: dict[int, float]) -> Batch:
        """The batch of `step`; the row length is drawn from `shares`."""
        rng = random.Random(step)
        size = rng.choices(list(shares), list(shares.values()))[0]
        count = TOKENS // size
        tokens = torch.full((count, size + 1), self.pad)
        weights = torch.zeros(count, size + 1)
        positions = torch.zeros(count, size, dtype=torch.long)
        for i in range(count):
            ids, w = self.row(step * 1000 + i, size)
            tokens[i, : len(ids)] = torch.tensor(ids)
            weights[i, : len(w)] = torch.tensor(w)
            positions[i] = stretched(rng, size)
        return Batch(tokens, positions, weights[:, 1:])


def stretched(rng: random.Random, size: int) -> Tensor:
    """Positions of a row: half of the time with gaps, so that distances up to the context occur."""
    steps = torch.ones(size, dtype=torch.long)
    steps[0] = 0
    room = CONTEXT - size
    if room > 0 and rng.random() < 0.5:
        room = int(room * rng.random() ** 2)
        cuts = [rng.randrange(1, size) for _ in range(rng.randint(1, 3))]
        for cut in cuts:
            steps[cut] += room // len(cuts)
    return steps.cumsum(0)
