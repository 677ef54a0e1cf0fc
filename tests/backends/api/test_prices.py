"""What tokens cost: prices in lists of models, in the settings, and sums in the frontends."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.api.model_list import listed_price
from shepherd.events import Stats
from shepherd.messages import JsonObject
from shepherd.prices import Price
from shepherd.server.agent.agent import total
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.backends.openai_server import chunk
from tests.cli.program import Program

OPENROUTER = {
    "pricing": {
        "prompt": "0.00000125",
        "completion": "0.00001",
        "input_cache_read": "0.000000125",
        "image": "0",
    }
}
PRICE = Price(1.25, 10, 0.125)


@pytest.mark.parametrize(
    ("item", "price"),
    [
        (OPENROUTER, PRICE),
        ({"pricing": {"input": "0.00000125", "output": "0.00001"}}, Price(1.25, 10, 1.25)),
        ({"pricing": {"hourly": 0, "input": 0.18, "output": 0.59}}, Price(0.18, 0.59, 0.18)),
        ({"pricing": {"input": 1.25, "output": 10, "cache_read": 0.125}}, PRICE),
        (
            {"metadata": {"pricing": {"input_tokens": 0.02, "output_tokens": 0.05}}},
            Price(0.02, 0.05, 0.02),
        ),
        (
            {
                "model_info": {
                    "input_cost_per_token": 1.25e-06,
                    "output_cost_per_token": 1e-05,
                    "cache_read_input_token_cost": 1.25e-07,
                }
            },
            PRICE,
        ),
        ({"pricing": {"prompt": "0", "completion": "0"}}, None),
        ({"pricing": {"prompt": "-1", "completion": "-1"}}, None),
        ({"pricing": {"prompt": "0.1"}}, None),
        ({"pricing": {"prompt": "free", "completion": True}}, None),
        ({"pricing": {"prompt": "nan", "completion": "inf"}}, None),
        ({"pricing": "0.1"}, None),
        ({}, None),
    ],
)
def test_the_prices_of_lists(item: JsonObject, price: Price | None) -> None:
    listed = listed_price(item)
    values = (0.0, 0.0, 0.0) if listed is None else (listed.read, listed.written, listed.cached)
    assert (listed is None) == (price is None)
    if price is not None:
        assert values == pytest.approx((price.read, price.written, price.cached))


def test_sums_over_rounds_keep_what_is_known() -> None:
    assert total([Stats(cost=0.5), Stats()]).cost == 0.5
    assert total([Stats(), Stats()]).cost is None


USAGE = {
    "prompt_tokens": 1_000_000,
    "completion_tokens": 100_000,
    "prompt_tokens_details": {"cached_tokens": 400_000},
}


def answer(request: Received) -> Reply:
    """A server that lists its price and counts its tokens."""
    if request.path == "/v1/models":
        return Reply({"data": [{"id": "big", "context_length": 4_000_000, **OPENROUTER}]})
    end = {**chunk("", "stop"), "usage": USAGE}
    return Reply.sse([chunk("hi", None), end])


@pytest.mark.parametrize(
    ("options", "cost"),
    [
        ((), 0.6 * 1.25 + 0.4 * 0.125 + 1.0),
        (("--set", 'terminal.prices=["big 2 20"]'), 2.0 + 2.0),
    ],
)
async def test_programs_read_the_cost(
    tmp_path: Path, options: tuple[str, ...], cost: float
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    async with Upstream(answer) as upstream:
        provider = ("--backend", "openai", "--api-base", f"{upstream.url}/v1", "--model", "big")
        arguments = (*provider, *options, "--json")
        program = Program(home, work)
        done = await asyncio.to_thread(program.run, *arguments, stdin="one\ntwo\n")
    objects: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    stats = [item for item in objects if item["type"] == "stats"]
    ends = [item for item in objects if item["type"] == "end_turn"]
    assert [item["cost"] for item in stats] == pytest.approx([cost, cost])
    assert [item["cost"] for item in ends] == pytest.approx([cost, cost])
    assert [item["total_cost"] for item in ends] == pytest.approx([cost, 2 * cost])
