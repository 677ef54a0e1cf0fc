"""The pieces of `bench.server`, once and small; nothing is timed."""

import json

import pytest

from bench.server import wires
from bench.server.load import Post, body_of, latencies
from bench.server.proxied import ALONE, LITELLM, OURS, STREAM, WHOLE, Sizes, measure, post, table
from bench.server.proxied import upstream_server as upstream
from bench.server.upstream import WORDS
from bench.server.wires import PATHS, THEIRS, Figures
from tests.server.harness import scripted

TINY = Sizes(rounds=2, requests=2, seconds=0.01, clients=2, warm_up=1)


async def test_all_sides_take_turns() -> None:
    with upstream() as url:
        whole = json.loads(await body_of(post(url, stream=False)))
        stream = await body_of(post(url, stream=True))
        figures = await measure({ALONE: url, OURS: url, LITELLM: url}, TINY)
    assert whole["choices"][0]["message"]["content"] == "".join(WORDS)
    assert stream.count(b"data: ") == len(WORDS) + 4
    assert [len(found.seconds) for found in figures.values()] == [4] * 6
    rows = table(figures).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {WHOLE}"] * 3 + [f"| {STREAM}"] * 3


async def test_each_path_is_served_and_a_missing_one_is_named() -> None:
    with scripted("text: some words") as server:
        sizes = wires.Sizes(rounds=1, requests=1, tokens=4)
        figures = await wires.measure({wires.OURS: server.url, THEIRS: server.url}, sizes)
        assert {found.missing for found in figures.values()} == {""}
        with pytest.raises(ConnectionError, match="404"):
            await latencies(Post(server.url, "/v1/nothing", {}), 1)
    figures[PATHS[0].path, THEIRS] = Figures(missing="HTTP/1.1 404 Not Found")
    assert "| HTTP/1.1 404 Not Found | – | – |" in wires.table(figures)
