"""MaskBench, the schemas of JSONSchemaBench with instances: coverage, soundness, and speed.

Its data has no licence: it is used where it was cloned, and nothing of it is kept.
"""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from bench.weights import GEMMA, PACKAGES
from scripts.conformance.place import commit, python, repository
from scripts.conformance.schemas import compiled, takes_text
from scripts.conformance.verdict import Verdict
from shepherd.backends.inprocess.lark import Rules, json_value
from shepherd.backends.inprocess.matcher import (
    BYTES,
    TokenBytes,
    compile_grammar,
    tokenizer_for,
)
from shepherd.backends.inprocess.schema import prepare
from shepherd.errors import InvalidRequestError

GEMMA_MODULE = PACKAGES[GEMMA].replace("-", "_")
TIMED = 12
"""The speed is measured with one of so many schemas."""

MAX_MASKS = 300
"""Of one instance: the longest would outweigh all others."""


def run(work: Path) -> list[Verdict]:
    """Coverage and soundness over bytes, speed with a vocabulary of 262,144 tokens."""
    del work
    bench = repository("guidance-ai/jsonschemabench")
    files = sorted((bench / "maskbench" / "data").glob("*.json"))
    plain, taken, refused = 0, 0, Counter[str]()
    right, unsound, narrower = 0, list[str](), 0
    byte_tokens = tokenizer_for(BYTES)
    for file in files:
        case = json.loads(file.read_text("utf-8"))
        plain += _is_plain(case["schema"], byte_tokens)
        try:
            grammar = compiled(case["schema"], strict=True)
        except InvalidRequestError as error:
            refused[str(error).partition(": ")[2][:40]] += 1
            continue
        taken += 1
        for test in case["tests"]:
            fits = takes_text(grammar.matcher, json.dumps(test["data"], ensure_ascii=False))
            if fits and not test["valid"]:
                unsound.append(f"{file.stem}: {test['description']}: an invalid value is taken")
            elif fits or not test["valid"]:
                right += 1
            else:
                narrower += 1
    version = commit(bench)
    reasons = ", ".join(f"{reason} {count}" for reason, count in refused.most_common(6))
    return [
        Verdict(
            "MaskBench, schemas that strict takes",
            version,
            taken,
            len(files),
            (f"llguidance alone takes {plain:,}", f"refused by name, most often {reasons}"),
            details=tuple(_speed(files)),
        ),
        Verdict(
            "MaskBench, values under strict",
            version,
            right,
            right + len(unsound),
            (f"{narrower:,} valid values that an answer does not have on purpose",),
            tuple(unsound),
        ),
    ]


def _is_plain(schema: Any, tokenizer: LLTokenizer) -> bool:
    """Whether llguidance alone takes a schema, within its own limits."""
    try:
        grammar = LLMatcher.grammar_from_json_schema(schema)
    except ValueError:
        return False
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LLParserLimits())
    matcher.compute_bitmask()
    return not matcher.is_error()


def _speed(files: list[Path]) -> Iterator[str]:
    """The time of a thread for compiling, and for each mask along valid values."""
    tokenizer = tokenizer_for(_vocabulary())
    compiles, masks = list[float](), list[float]()
    for file in files[::TIMED]:
        case = json.loads(file.read_text("utf-8"))
        began = time.thread_time()
        try:
            prepared = prepare(case["schema"], strict=True)
            rules = Rules()
            answer = rules.add("answer", json_value(prepared.value, strict=True))
            matcher = compile_grammar(rules.text(answer), tokenizer)
        except InvalidRequestError:
            continue
        compiles.append(time.thread_time() - began)
        for test in case["tests"]:
            if test["valid"]:
                masks += _masks(matcher.deep_copy(), test["data"], tokenizer)
    for name, times in (("compiling", compiles), ("a mask", masks)):
        times.sort()
        parts = [f"p{part} {1000 * times[len(times) * part // 100]:.2f} ms" for part in (50, 99)]
        yield (
            f"{name} for 262,144 tokens: {', '.join(parts)}, longest {1000 * times[-1]:.0f} ms of "
            f"CPU time ({len(times):,} times)"
        )


def _masks(matcher: LLMatcher, value: Any, tokenizer: LLTokenizer) -> Iterator[float]:
    """The times of the masks before each token of a value."""
    for token in tokenizer.greedy_tokenize(json.dumps(value, ensure_ascii=False))[:MAX_MASKS]:
        began = time.thread_time()
        matcher.compute_bitmask()
        yield time.thread_time() - began
        if not matcher.try_consume_tokens([token]):
            return


def _vocabulary() -> TokenBytes:
    """That of Gemma 3, as bytes."""
    interpreter = python("vocabulary", PACKAGES[GEMMA])
    command = [str(interpreter), "-c", f"import {GEMMA_MODULE} as m; print(m.assemble())"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    file = done.stdout.splitlines()[-1]
    field = GGUFReader(file).fields["tokenizer.ggml.tokens"]
    tokens: list[str] = field.contents()
    pieces = [
        bytes([int(token[3:-1], 16)])
        if token.startswith("<0x") and token.endswith(">")
        else token.replace("▁", " ").encode()
        for token in tokens
    ]
    return TokenBytes(pieces, [1, 106])
