"""`python -m bench [NAME…]`: run the measurements and print their tables."""

import sys
from collections.abc import Callable

from bench import startup, streaming, turns
from bench.table import machine

BENCHES: dict[str, Callable[[], None]] = {
    "startup": startup.main,
    "turns": turns.main,
    "streaming": streaming.main,
}


def main(names: list[str]) -> int:
    """Run the named measurements, all without names; returns 2 for an unknown name."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
        return 2
    print(machine())
    for name in names or list(BENCHES):
        print(f"\n## {name}\n")
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
