"""`python -m bench.mtp MODEL`: what a layer that predicts ahead (MTP) gains, beside llama.cpp's.

`python -m training.mtp` makes a model with such a layer. Each server has one thread, and writes
answers of the same length at temperature 0. The first answer to a question fills the cache, and the
fastest of the others counts, in processor time, so that it holds on a busy machine too. Texts must
be the same with drafts and without; the two engines round differently.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx

from bench.engine.structured import processor_seconds
from bench.peers import Load, llama_server, shepherd_server
from bench.table import machine, markdown

RUNS = 3
TOKENS = 160
QUESTIONS = (
    "list the files in docs/guides",
    "What does the file notes/todo.txt say?",
    "Please run the command make test",
    "write the line hello world into greeting.txt",
)
HEADER = ("server", "tokens per second of processor time", "drafted", "of these right", "texts")


def main(arguments: Sequence[str]) -> int:
    """Print one row for each server."""
    parser = argparse.ArgumentParser(prog="python -m bench.mtp", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each answer")
    options = parser.parse_args(arguments)
    load = Load(options.model, 4096, threads=1)
    sides: dict[str, AbstractContextManager[str]] = {
        "Shepherd, no drafts": shepherd_server(load, settings=["speculation=off"]),
        "Shepherd, from the conversation": shepherd_server(load, settings=["speculation=lookup"]),
        "Shepherd, also with its layer": shepherd_server(load),
        "llama.cpp's server, no drafts": llama_server(load),
        "llama.cpp's server, draft-mtp": llama_server(load, mtp=True),
    }
    texts: dict[str, list[str]] = {}
    rows: list[list[str]] = []
    for name, server in sides.items():
        with server as url, httpx.Client(base_url=url, timeout=600, trust_env=False) as client:
            answers = [_best(client, question, options) for question in QUESTIONS]
        own = [text for text, _, _ in answers]
        plain = texts.setdefault(name.split(",")[0], own)
        seconds = sum(seconds for _, seconds, _ in answers)
        drafted = sum(timings.get("draft_n", 0) for _, _, timings in answers)
        right = sum(timings.get("draft_n_accepted", 0) for _, _, timings in answers)
        same = sum(one == other for one, other in zip(own, plain, strict=True))
        rows.append(
            [
                name,
                f"{options.tokens * len(QUESTIONS) / seconds:.1f}",
                f"{drafted:,}",
                f"{100 * right / drafted:.0f} %" if drafted else "–",
                f"{same} of {len(QUESTIONS)} the same",
            ]
        )
    print(f"{machine()}; {options.model.name}, one thread\n\n{markdown(HEADER, rows)}")
    return 0


def _best(
    client: httpx.Client, question: str, options: argparse.Namespace
) -> tuple[str, float, dict[str, Any]]:
    """The text, the least processor time, and the numbers of drafts of its answers."""
    answers = [_ask(client, question, options.tokens) for _ in range(options.runs + 1)][1:]
    return min(answers, key=lambda answer: answer[1])


def _ask(client: httpx.Client, question: str, tokens: int) -> tuple[str, float, dict[str, Any]]:
    before = processor_seconds()
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    body = {"model": "default", "prompt": prompt, "temperature": 0, "ignore_eos": True}
    response = client.post("/completion", json=body | {"n_predict": tokens})
    response.raise_for_status()
    time.sleep(0.02)  # work after the answer counts too
    seconds = processor_seconds() - before
    answer = response.json()
    return answer["content"], seconds, answer["timings"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
