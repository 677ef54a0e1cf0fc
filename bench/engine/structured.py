"""`python -m bench.engine.structured [MODEL]`: answers that a schema or a forced call constrains.

Shepherd's server, the same without its jump ahead, and llama.cpp's server answer the same requests
at temperature 0, each with one thread. The first answer of a request fills the cache, and the
fastest of the others counts. Time is the server's processor time, so that it holds on a busy
machine too. An answer is valid if it fits its schema. The model is SmolLM2-135M-Instruct.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from jsonschema import ValidationError, validate

from bench.peers import Load, llama_server, shepherd_server
from bench.table import machine, markdown
from bench.weights import SMOLLM2, chosen_models

RUNS = 4
_CONTEXT = 4096
_TICKS = os.sysconf("SC_CLK_TCK")


def _record(**properties: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_NAME = {"type": "string", "maxLength": 24}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 9999}
SCHEMAS: dict[str, dict[str, Any]] = {
    "contact": _record(
        first_name=_NAME,
        last_name=_NAME,
        email_address=_NAME,
        preferred_language={"enum": ["english", "german", "french"]},
        receives_newsletter={"type": "boolean"},
    ),
    "verdict": _record(
        classification={"enum": ["positive", "negative", "neutral"]},
        needs_human_review={"type": "boolean"},
        priority={"enum": ["low", "normal", "urgent"]},
    ),
    "order": _record(
        order_number=_COUNT,
        shipping_address=_record(street=_NAME, postal_code=_COUNT, country=_NAME),
        items={
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": _record(
                product_identifier=_COUNT, quantity=_COUNT, is_gift={"type": "boolean"}
            ),
        },
    ),
    "read_file": _record(
        file_path=_NAME,
        first_line=_COUNT,
        last_line=_COUNT,
        with_line_numbers={"type": "boolean"},
        encoding={"enum": ["utf-8", "latin-1"]},
    ),
}
CALL = "read_file"
"""The schema that is a tool's, whose call is forced."""

TEXTS = {
    "contact": "Ann Smith (ann@farm.org) speaks German and wants our newsletter. Her record?",
    "verdict": "Classify: 'The dog ate my bread, and nobody came to help.'",
    "order": "Order 17: two clocks and one map to 5 Hill Road, 4711 Wales. Give the record.",
    "read_file": "Show me the lines 10 to 20 of src/main.py.",
}


@dataclass(frozen=True, slots=True)
class Side:
    """A server that is measured."""

    name: str
    server: AbstractContextManager[str]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its tokens, characters and processor time in seconds."""

    tokens: int
    characters: int
    seconds: float
    valid: bool


def main(arguments: Sequence[str]) -> int:
    """Print one table of tokens per second, and of valid answers."""
    options = _options(arguments)
    model = chosen_models([options.model], [])[options.model]
    load = Load(model, _CONTEXT, threads=1)
    sides = [
        Side("Shepherd", shepherd_server(load)),
        Side("Shepherd, no jumps", shepherd_server(load, settings=["jump_ahead=false"])),
        Side("llama.cpp's server", llama_server(load)),
    ]
    answers = {side.name: _measure(side, options.runs) for side in sides}
    names = list(answers)
    print(f"{machine()}; {options.model}, one thread; answers per second of processor time\n")
    rows = [
        (name, *(f"{1 / answers[side][name].seconds:.2f}" for side in names)) for name in SCHEMAS
    ]
    print(markdown(("request", *names), [*rows, *_totals(answers)]))
    return 0


def _totals(answers: dict[str, dict[str, Answer]]) -> list[tuple[str, ...]]:
    sums = {side: list(own.values()) for side, own in answers.items()}
    seconds = {side: sum(a.seconds for a in own) for side, own in sums.items()}
    tokens = {side: sum(a.tokens for a in own) for side, own in sums.items()}
    characters = {side: sum(a.characters for a in own) for side, own in sums.items()}
    valid = {side: sum(a.valid for a in own) for side, own in sums.items()}
    return [
        ("tokens/s", *(f"{tokens[side] / seconds[side]:.1f}" for side in sums)),
        ("characters/s", *(f"{characters[side] / seconds[side]:.1f}" for side in sums)),
        ("valid", *(f"{valid[side]} of {len(SCHEMAS)}" for side in sums)),
    ]


def _measure(side: Side, runs: int) -> dict[str, Answer]:
    with side.server as url, httpx.Client(base_url=url, timeout=600, trust_env=False) as client:
        best: dict[str, Answer] = {}
        for name in SCHEMAS:
            _ask(client, name)
            answers = [_ask(client, name) for _ in range(runs)]
            best[name] = min(answers, key=lambda answer: answer.seconds)
        return best


def _ask(client: httpx.Client, name: str) -> Answer:
    before = processor_seconds()
    response = client.post("/v1/chat/completions", json=_body(name))
    response.raise_for_status()
    time.sleep(0.02)  # work after the answer counts too
    seconds = processor_seconds() - before
    body = response.json()
    message = body["choices"][0]["message"]
    calls = message.get("tool_calls")
    text = calls[0]["function"]["arguments"] if calls else message.get("content") or ""
    tokens = body["usage"]["completion_tokens"]
    return Answer(tokens, len(text), max(seconds, 1 / _TICKS), _is_valid(text, name))


def _body(name: str) -> dict[str, Any]:
    schema = SCHEMAS[name]
    body: dict[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": TEXTS[name]}],
        "temperature": 0,
        "max_tokens": 200,
    }
    if name != CALL:
        return body | {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": schema, "strict": True},
            }
        }
    function = {"name": name, "description": "Reads a file.", "parameters": schema}
    return body | {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
    }


def _is_valid(text: str, name: str) -> bool:
    try:
        validate(json.loads(text), SCHEMAS[name])
    except (ValueError, ValidationError):
        return False
    return True


def processor_seconds() -> float:
    """The processor time of the running child processes."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine.structured", description=__doc__)
    parser.add_argument("model", nargs="?", default=SMOLLM2, metavar="MODEL")
    parser.add_argument("--runs", type=int, default=RUNS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
