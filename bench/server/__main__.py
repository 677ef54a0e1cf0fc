"""`python -m bench.server [NAME …]`: the server beside others, under load, before others."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.server import bad, proxied, wires
from bench.table import machine


def main(arguments: Sequence[str]) -> int:
    """Run the measurements that are named, all without names, and print their tables."""
    options = _options(arguments)
    print(f"{machine()}\n")
    for name in options.what or BENCHES:
        title, run = BENCHES[name]
        print(f"{title}:\n\n{run(options)}\n", flush=True)
    return 0


def _bad(options: argparse.Namespace) -> str:
    return bad.main(options.only, options.seconds)


def _proxied(options: argparse.Namespace) -> str:
    sizes = proxied.QUICK if options.quick else proxied.Sizes()
    return proxied.main(sizes, options.litellm)


def _wires(options: argparse.Namespace) -> str:
    return wires.main(wires.QUICK if options.quick else wires.Sizes())


BENCHES: dict[str, tuple[str, Callable[[argparse.Namespace], str]]] = {
    "bad": ("Bad requests of one client", _bad),
    "proxied": ("A model server behind a proxy", _proxied),
    "wires": ("Each API beside llama.cpp's server", _wires),
}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.server")
    parser.add_argument("what", nargs="*", choices=[*BENCHES, []], default=[], metavar="what")
    parser.add_argument("--only", default="", help="part of the names of bad requests")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each bad request, at least")
    parser.add_argument(
        "--litellm", type=Path, help="LiteLLM's program, in an environment of its own"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
