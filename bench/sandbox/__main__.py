"""`python -m bench.sandbox`: the cost of a sandbox, and the programs that work inside."""

import argparse
import sys
from collections.abc import Sequence

from bench.sandbox.everyday import compare
from bench.sandbox.starts import measure, table
from bench.table import machine
from shepherd.tools.sandbox.boxes.probe import probe
from shepherd.tools.sandbox.sandbox import candidates


def main(arguments: Sequence[str]) -> int:
    """Measure, and print both tables."""
    options = _options(arguments)
    attempts = [(box, probe(box)) for box in candidates()]
    boxes = [box for box, attempt in attempts if attempt.ok and box.name in options.boxes]
    print(f"{machine()}\n")
    for _box, attempt in attempts:
        if not attempt.ok:
            print(f"{attempt.name} does not work here: {attempt.reason}\n")
    measured = {files: measure(boxes, options.rounds, files) for files in options.files}
    print(f"Commands, {options.rounds} rounds, p50 and p95:\n\n{table(measured)}\n")
    if options.everyday:
        everyday = compare(boxes)
        print(f"Everyday commands:\n\n{everyday.table()}\n\n{everyday.details()}")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    names = [box.name for box in candidates()]
    parser = argparse.ArgumentParser("python -m bench.sandbox")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--files", nargs="+", type=int, default=[10, 1_000, 10_000, 100_000])
    parser.add_argument("--boxes", nargs="+", choices=names, default=names)
    parser.add_argument("--no-everyday", dest="everyday", action="store_false")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
