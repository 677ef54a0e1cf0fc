"""`python -m bench.backends`: our API backends beside the official SDKs."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from bench.backends.measure import QUICK, Rounds, Sizes, measure
from bench.backends.recordings import WIRES
from bench.backends.report import latency_table, processor_table
from bench.table import machine


def main(arguments: Sequence[str]) -> int:
    """Measure, and print both tables."""
    options = _options(arguments)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds)
    packages = ("httpx", "openai", "anthropic", "google-genai", "ollama")
    print(f"{machine()}; {', '.join(f'{name} {version(name)}' for name in packages)}\n")
    found: dict[str, Rounds] = {}
    for wire in options.wires:
        print(f"measuring {wire}", file=sys.stderr, flush=True)
        found[wire] = measure(wire, sizes)
    print(f"Processor time per 1,000 chunks:\n\n{processor_table(found, sizes)}\n")
    print(f"Time added:\n\n{latency_table(found)}")
    if options.json:
        saved = {
            wire: {
                name: {side: [asdict(r) for r in results] for side, results in sides.items()}
                for name, sides in rounds.items()
            }
            for wire, rounds in found.items()
        }
        options.json.write_text(json.dumps(saved))
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.backends")
    parser.add_argument("--rounds", type=int, default=Sizes().rounds)
    parser.add_argument("--wires", nargs="+", choices=WIRES, default=list(WIRES))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--json", type=Path, help="also write every round's numbers there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
