"""`python -m bench.backends`: compares our API backends with the official SDKs."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from bench.backends.measure import QUICK, Rounds, Sizes, measure
from bench.backends.recordings import ADAPTERS
from bench.backends.report import latency_table, processor_table
from bench.table import machine


def main(arguments: Sequence[str]) -> int:
    """Measure, and print both tables."""
    options = _options(arguments)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds)
    packages = ("httpx", "openai", "anthropic", "google-genai", "ollama")
    print(f"{machine()}; {', '.join(f'{name} {version(name)}' for name in packages)}\n")
    results: dict[str, Rounds] = {}
    for adapter in options.adapters:
        print(f"measuring {adapter}", file=sys.stderr, flush=True)
        results[adapter] = measure(adapter, sizes)
    print(f"Processor time per 1,000 chunks:\n\n{processor_table(results, sizes)}\n")
    print(f"Time added:\n\n{latency_table(results)}")
    if options.json:
        saved = {
            adapter: {
                name: {side: list(map(asdict, measured)) for side, measured in sides.items()}
                for name, sides in rounds.items()
            }
            for adapter, rounds in results.items()
        }
        options.json.write_text(json.dumps(saved))
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.backends")
    parser.add_argument("--rounds", type=int, default=Sizes().rounds)
    parser.add_argument("--adapters", nargs="+", choices=ADAPTERS, default=list(ADAPTERS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--json", type=Path, help="also write every round's numbers there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
