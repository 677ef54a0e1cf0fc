"""`python -m scripts.conformance [JUDGE…]` runs judges and writes docs/conformance.md."""

import argparse
import importlib
import pkgutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import scripts.conformance
from scripts.conformance.page import Outcome, render
from scripts.conformance.verdict import Skipped

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_PARTS = {"__main__", "genai", "page", "place", "verdict"}


def judges() -> list[str]:
    """The names of all judges: the modules that have `run`."""
    modules = pkgutil.iter_modules(scripts.conformance.__path__)
    return sorted({module.name for module in modules if not module.ispkg} - _PARTS)


def judged(name: str) -> Outcome:
    """What one judge says."""
    judge = importlib.import_module(f"scripts.conformance.{name}")
    with tempfile.TemporaryDirectory(prefix=f"conformance-{name}-") as work:
        try:
            return judge.run(Path(work))
        except Skipped as reason:
            return reason


def main() -> None:
    """Run the judges that are named, all without a name; write the page after each."""
    parser = argparse.ArgumentParser(prog="python -m scripts.conformance", description=__doc__)
    parser.add_argument("judge", nargs="*", help=", ".join(judges()))
    chosen = parser.parse_args().judge or judges()
    if unknown := set(chosen) - set(judges()):
        parser.error(f"no such judge: {', '.join(sorted(unknown))}")
    outcomes: dict[str, Outcome] = {}
    _write(outcomes)
    for name in chosen:
        began = monotonic()
        outcome = outcomes[name] = judged(name)
        print(f"{name} ({monotonic() - began:.0f} s)")
        if isinstance(outcome, Skipped):
            print(f"  skipped: {outcome}")
        else:
            for verdict in outcome:
                print(f"  {verdict.judge} {verdict.version}: ", end="")
                print(f"{verdict.passed} of {verdict.applicable}")
                print(*(f"    {text}" for text in verdict.failures), sep="\n", end="\n")
        _write(outcomes)


def _write(outcomes: Mapping[str, Outcome]) -> None:
    former = PAGE.read_text("utf-8") if PAGE.exists() else ""
    PAGE.write_text(render(outcomes, judges(), former), "utf-8")


if __name__ == "__main__":
    main()
