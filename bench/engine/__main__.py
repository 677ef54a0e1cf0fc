"""`python -m bench.engine`: compares the engine with other servers; takes about half an hour."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.engine.model import Shape, random_llama
from bench.engine.report import OURS, PYTHON_SERVER, SERVER, table
from bench.engine.scenarios import STREAMS, Bench, Sizes, after_restart, before_restart
from bench.packages import server_packages
from bench.peers import Load, llama_cpp_python_server, llama_server, shepherd_server, threads
from bench.table import machine
from bench.weights import GEMMA, PUP, SMOLLM2_Q4, SMOLLM2_Q8, chosen_models, with_context

CONTEXT = 24_576
END_TOKENS = ("0", "2")
"""Pup's tokens that end an answer, also those of the random model."""

RANDOM = "random"
MODELS = (PUP, RANDOM, SMOLLM2_Q8, SMOLLM2_Q4, GEMMA)

QUICK = Sizes(rules=30, turns=3, alternations=1, decode_tokens=12, decode_runs=1)
QUICK_SHAPE = Shape(width=64, layers=2, heads=2, kv_heads=1, feed_forward=96, vocabulary=2048)

Serve = Callable[[Load, Path], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class Side:
    """A server: how to start it with a load and a home, and how to make answers endless."""

    name: str
    serve: Serve
    endless: Mapping[str, Any]
    batches: bool = True


@dataclass
class Plan:
    """The measurements of a run."""

    rounds: int
    sizes: Sizes
    sides: list[Side]
    threads: int
    results: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: defaultdict(list[dict[str, float]])
    )

    def run(self, title: str, model: Path) -> None:
        """All rounds on one model; every other round runs the sides in the opposite order."""
        for number in range(self.rounds):
            for side in self.sides if number % 2 == 0 else self.sides[::-1]:
                _say(f"{title}, round {number + 1} of {self.rounds}: {side.name}")
                self.results[side.name].append(self._measure(side, model))

    def _measure(self, side: Side, model: Path) -> dict[str, float]:
        results: dict[str, float] = {}
        load = Load(model, CONTEXT, STREAMS, self.threads)
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            with side.serve(load, home) as url:
                bench = Bench(url, self.sizes, side.endless, results)
                conversation = asyncio.run(before_restart(bench, batches=side.batches))
            with side.serve(load, home) as url:
                asyncio.run(
                    after_restart(Bench(url, self.sizes, side.endless, results), conversation)
                )
        return results


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table per model."""
    options = _options(arguments)
    sizes = QUICK if options.quick else Sizes()
    print(f"{machine()}; {options.threads} threads for all; {_versions()}")
    sides = _sides(options.sides)
    saved: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            model = _model(name, Path(folder), quick=options.quick)
            plan = Plan(1 if options.quick else options.rounds, sizes, sides, options.threads)
            plan.run(name, model)
            prefix = max(result["prefix"] for rows in plan.results.values() for result in rows)
            print(
                f"\n## {name} ({model.stat().st_size / 1e6:.0f} MB, prefix {prefix:.0f} tokens)\n"
            )
            print(table(plan.results), flush=True)
            saved[name] = plan.results
    if options.json:
        options.json.write_text(json.dumps(saved, indent=1))
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.engine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=threads(), help="of each server")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[PUP, RANDOM])
    parser.add_argument("--sides", nargs="+", choices=[OURS, SERVER, PYTHON_SERVER])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--json", type=Path, help="also write every round's numbers there")
    return parser.parse_args(arguments)


def _model(name: str, folder: Path, *, quick: bool) -> Path:
    if name == RANDOM:
        return random_llama(folder / "random.gguf", CONTEXT, QUICK_SHAPE if quick else Shape())
    # llama.cpp's server offers no more than the context of the file
    return with_context(chosen_models([name], [])[name], folder / "model.gguf", CONTEXT)


def _sides(names: Sequence[str] | None) -> list[Side]:
    selected = names or (OURS, SERVER, PYTHON_SERVER)
    endless = {"ignore_eos": True}
    sides = [Side(OURS, _serve_shepherd, endless), Side(SERVER, _serve_llama, endless)]
    if PYTHON_SERVER in selected:
        try:
            packages = server_packages()
        except RuntimeError as error:
            _say(f"without {PYTHON_SERVER}'s server: {error}")
        else:
            serve = partial(_serve_llama_cpp_python, packages)
            bans = {"logit_bias": dict.fromkeys(END_TOKENS, -100)}
            sides.append(Side(PYTHON_SERVER, serve, bans, batches=False))
    return [side for side in sides if side.name in selected]


def _serve_shepherd(load: Load, home: Path) -> AbstractContextManager[str]:
    # drafts are not compared here: random weights repeat themselves
    return shepherd_server(load, home=home, settings=["speculation=off"])


def _serve_llama(load: Load, _home: Path) -> AbstractContextManager[str]:
    return llama_server(load)


def _serve_llama_cpp_python(packages: Path, load: Load, _home: Path) -> AbstractContextManager[str]:
    return llama_cpp_python_server(load, packages)


def _versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in ("xllamacpp", "llama-cpp-python"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
