"""An answer that ends at a line, and the sampler for gaps."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.sampling import Sampling
from shepherd.server.raw.lines import LineLimits, LineText
from tests.backends.llamacpp.tiny import write_llama
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

INFILL = {"pre": 3, "suf": 4, "mid": 5}
PIECES = st.lists(st.sampled_from(["a", " ", "\t", "\n", "\n\n", " b", "c\n  d"]))


def ended(text: str, indent: int) -> str:
    """The text before the first line, but for the first, with too few blanks."""
    place = text.find("\n") + 1
    while place:
        rest = text[place:]
        blanks = len(rest) - len(rest.lstrip(" \t"))
        if blanks < min(indent, len(rest)):
            return text[: place + blanks]
        place = text.find("\n", place) + 1
    return text


@given(PIECES, st.integers(0, 3))
def test_pieces_do_not_change_where_a_text_ends(pieces: list[str], indent: int) -> None:
    lines = LineText(LineLimits(indent))
    kept = "".join([lines.add(piece) for piece in pieces])
    whole = "".join(pieces)
    assert kept == lines.text
    assert kept == (ended(whole, indent) if indent else whole)
    assert lines.ended == (len(kept) < len(whole))


def test_time_ends_an_answer_at_a_new_line() -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 5.0])
    lines = LineText(LineLimits(seconds=2), lambda: next(times))
    kept = [lines.add(piece) for piece in ("a\n", "b\n", "c", "d\n", "e")]
    assert kept == ["a\n", "b\n", "c", "d\n", ""]
    assert lines.ended


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer[LlamaCppBackend]]:
    loop = asyncio.new_event_loop()
    path = write_llama(tmp_path_factory.mktemp("models") / "gap.gguf", infill=INFILL)
    section = LlamaCppSection(threads=1, context_size=256, speculation="off")
    loading = LlamaCppBackend.load(path, section, Sampling(temperature=0.0), name="gap")
    with RunningServer(loop.run_until_complete(loading), loop=loop) as running:
        yield running


def test_a_request_of_an_editor_is_answered(server: RunningServer[LlamaCppBackend]) -> None:
    body = {
        "id_slot": 0,
        "input_prefix": "def f():\n",
        "input_suffix": "\n",
        "input_extra": [{"filename": "a.py", "text": "x = 1"}],
        "prompt": "    ",
        "n_predict": 8,
        "stop": [],
        "n_indent": 4,
        "top_k": 40,
        "top_p": 0.9,
        "stream": False,
        "samplers": ["top_k", "top_p", "infill"],
        "cache_prompt": True,
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 100_000,
        "response_fields": ["content", "timings/prompt_n", "truncated"],
    }
    answer = httpx.post(f"{server.url}/infill", json=body, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"content", "timings/prompt_n", "truncated"}
    warm = body | {"n_predict": 0, "samplers": [], "response_fields": [""]}
    assert httpx.post(f"{server.url}/infill", json=warm, timeout=PATIENCE).json() == {}


@pytest.mark.parametrize("stream", [False, True])
def test_a_line_without_blanks_ends_an_answer(
    server: RunningServer[LlamaCppBackend], *, stream: bool
) -> None:
    body = {
        "prompt": "a",
        "grammar": 'root ::= "a\\n  b\\nccccccccc\\n"',
        "n_indent": 2,
        "stream": stream,
    }
    answer = httpx.post(f"{server.url}/completion", json=body, timeout=PATIENCE)
    if stream:
        assert '"stop_type":"limit"' in answer.text
        assert '"content":"c' not in answer.text
        return
    ended_answer = answer.json()
    assert (ended_answer["content"], ended_answer["stop_type"]) == ("a\n  b\n", "limit")
