"""`python -m bench.engine.flash [MODEL…]`: what flash attention and a small cache gain.

Each case is new tokens behind a filled cache, in one thread, in turns with the settings of `SIDES`.
Numbers are the time as a multiple of that of `plain`. Processor time counts, the least of several
rounds, so that it holds on a busy machine too.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.table import machine, markdown, ratio
from bench.weights import GEMMA, PUP, SMOLLM2_Q4, SMOLLM2_Q8, chosen_models
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.config.llamacpp import LlamaCppSection

ROUNDS = 5
CONTEXT = 16_384
CASES: dict[str, tuple[int, int, int, int]] = {
    "512 tokens, nothing before": (1, 0, 1, 512),
    "1 each, 8 streams of 500": (8, 500, 8, 1),
    "1 behind 3,000": (1, 3000, 1, 1),
    "16 behind 3,000": (1, 3000, 1, 16),
    "100 behind 3,000": (1, 3000, 1, 100),
    "512 behind 3,000": (1, 3000, 1, 512),
    "1 behind 3,000 beside 9,000": (4, 3000, 1, 1),
    "1 each, 4 streams of 3,000": (4, 3000, 4, 1),
    "100 behind 3,000 beside 9,000": (4, 3000, 1, 100),
}
"""Streams, the tokens of each in the cache, how many of them get new tokens, and how many."""

_SMALL = {"cache_type_k": "q8_0"}
SIDES: dict[str, dict[str, str]] = {
    "plain": {"flash_attention": "off"},
    "flash": {"flash_attention": "on"},
    "K in q8_0": {"flash_attention": "off", **_SMALL},
    "q8_0, flash": {"flash_attention": "on", "cache_type_v": "q8_0", **_SMALL},
}


class Side:
    """A model with one kind of attention and of cache."""

    def __init__(self, model: NativeModel, settings: Mapping[str, str]) -> None:
        own = LlamaCppSection.model_validate({"context_size": CONTEXT, "threads": 1, **settings})
        self.context = NativeContext(model, context_params(own, 8, model.traits))
        self.vocabulary = model.vocab.size
        self.filled = (0, 0)

    def fill(self, streams: int, tokens: int) -> None:
        """Begin again with streams of so many tokens, unless they are there."""
        if self.filled == (streams, tokens):
            return
        self.filled = streams, tokens
        self.context.clear()
        for start in range(0, tokens, 256):
            for stream in range(streams):
                self._decode(range(stream, stream + 1), start, min(256, tokens - start))

    def seconds(self, streams: int, behind: int, tokens: int) -> float:
        """The processor time of new tokens, which are then forgotten."""
        started = time.process_time()
        self._decode(range(streams), behind, tokens)
        taken = time.process_time() - started
        for stream in range(streams):
            self.context.remove(stream, behind)
        return taken

    def _decode(self, streams: range, start: int, count: int) -> None:
        tokens = [place % self.vocabulary for place in range(start + 7, start + 7 + count)]
        self.context.decode([Span(stream, start, tokens, wants_logits=True) for stream in streams])


def measure(path: Path, rounds: int) -> dict[str, list[str]]:
    """The ratios of the cases by the side."""
    model = NativeModel(path, model_params(LlamaCppSection(), {}))
    sides = {name: Side(model, settings) for name, settings in SIDES.items()}
    ratios: dict[str, list[str]] = {name: [] for name in SIDES if name != "plain"}
    for filled, behind, streams, tokens in CASES.values():
        least = dict.fromkeys(sides, float("inf"))
        for side in sides.values():
            side.fill(filled, behind)
        for _ in range(rounds):
            for name, side in sides.items():
                least[name] = min(least[name], side.seconds(streams, behind, tokens))
        for name, row in ratios.items():
            row.append(ratio(least[name], least["plain"]))
        print(path.stem, filled, behind, streams, tokens, least, file=sys.stderr, flush=True)
    for side in sides.values():
        side.context.close()
    model.close()
    return ratios


def main(arguments: Sequence[str]) -> int:
    """Print one row for each model."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.flash", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    usual = [PUP, SMOLLM2_Q8, SMOLLM2_Q4, GEMMA]
    rows = [
        (model, side, *row)
        for model, path in chosen_models(options.models, usual).items()
        for side, row in measure(path, options.rounds).items()
    ]
    print(f"{machine()}; one thread\n\n{markdown(('model', 'setting', *CASES), rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
