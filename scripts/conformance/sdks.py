"""The tests that the SDKs of OpenAI, Anthropic and Google have of their APIs, against Shepherd.

Each test of the first two calls a method and holds the answer to its type, loosely and strictly.
Their mock knows every id and takes every value. So responses are made for the tests that name one,
and what Shepherd refuses by name is not applicable.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from scripts.conformance import genai
from scripts.conformance.place import python, sdist, shepherd_server, tested, version
from scripts.conformance.verdict import Verdict, counted

TESTS = "tests/api_resources"


class Sdk(NamedTuple):
    """A package with its tests, and the path of its API."""

    name: str
    tests: tuple[str, ...]
    base: str = ""


SDKS = (
    Sdk(
        "openai",
        (
            "chat/test_completions.py",
            "responses",
            "test_completions.py",
            "test_embeddings.py",
            "test_models.py",
            "test_responses.py",
        ),
        "/v1",
    ),
    Sdk(
        "anthropic",
        ("test_messages.py", "test_models.py", "beta/test_messages.py", "beta/test_models.py"),
    ),
)
PACKAGES = (
    *("openai", "anthropic", "pytest", "pytest-asyncio", "rich", "inline-snapshot"),
    *("http-snapshot", "respx", "dirty-equals", "time-machine", "nest-asyncio", "httpx-aiohttp"),
)
REFUSED = re.compile(
    r"(?P<none>Error code: (?:405|404 - There is nothing))"
    r"|Error code: 400 - (?:\{.*?'message': ')?(?P<reason>[^\n']{1,80})"
)
BASE64 = "the SDK asks for vectors in base64 and refuses them in strict, whoever makes them"
NAMES = ("gpt-6-astra", "model_id", "text-embedding-3-small", "*")
PLUGIN = '''
"""Gives responses that exist to the tests that name one."""
import json, os, urllib.request
import pytest
IDS = ("resp_677efb5139a88190b512bc3fef8e535d", "response_id", "resp_123")

def made(**body):
    body = json.dumps({"model": "default", "input": "Hi", **body}).encode()
    url = os.environ["TEST_API_BASE_URL"] + "/responses"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["id"]

@pytest.fixture(autouse=True)
def stored(request, monkeypatch):
    if "esponse" not in request.node.nodeid or "openai" not in os.environ["SDK"]:
        yield
        return
    import openai._base_client as base
    new = []
    def changed(options):
        text = str(options.url) + json.dumps(options.json_data or {}, default=str)
        for known in IDS:
            if known in text:
                background = "cancel" in text or "stream=true" in str(options.params)
                new[:] = new or [made(background=background)]
                options.url = options.url.replace(known, new[0])
                data = options.json_data
                if isinstance(data, dict) and data.get("previous_response_id") == known:
                    data["previous_response_id"] = new[0]
        return options
    async def changed_async(self, options):
        return changed(options)
    monkeypatch.setattr(base.SyncAPIClient, "_prepare_options", lambda self, o: changed(o))
    monkeypatch.setattr(base.AsyncAPIClient, "_prepare_options", changed_async)
    yield
'''


def run(work: Path) -> list[Verdict]:
    """The SDKs, with the built-in model; a scripted one makes the vectors."""
    interpreter = python("sdks", *PACKAGES)
    (work / "stored_responses.py").write_text(PLUGIN, "utf-8")
    return [*(_verdict(work, interpreter, sdk) for sdk in SDKS), genai.verdict(work)]


def _verdict(work: Path, interpreter: Path, sdk: Sdk) -> Verdict:
    release = version(interpreter, sdk.name)
    folder = sdist(sdk.name, release)
    left_out, failures, passed = Counter[str](), list[str](), 0
    script = work / "vectors.script"
    script.write_text("text: Hello.\n", "utf-8")
    for model, tests in (
        ("pup", [test for test in sdk.tests if "embedding" not in test]),
        (f"script:{script}", [test for test in sdk.tests if "embedding" in test]),
    ):
        for name, problem in _results(work, interpreter, sdk, folder, model, tests):
            if match := REFUSED.search(problem):
                reason = match["reason"] or "an endpoint that is not served"
                left_out[reason.partition(". ")[0].rstrip(".")] += 1
            elif "Embeddings" in name and "APIResponseValidationError" in problem:
                left_out[BASE64] += 1
            elif problem:
                failures.append(f"{name}: {problem.splitlines()[0][:200]}")
            else:
                passed += 1
    return Verdict(
        f"{sdk.name}'s tests of its API",
        release,
        passed,
        passed + len(failures),
        counted(left_out),
        tuple(failures),
    )


def _results(
    work: Path, interpreter: Path, sdk: Sdk, folder: Path, model: str, tests: list[str]
) -> list[tuple[str, str]]:
    """The tests with what was wrong, "" if nothing was."""
    if not tests:
        return []
    aliases = "{" + ", ".join(f'"{name}" = "default"' for name in NAMES) + "}"
    options = ("--max-tokens", "16", "--set", f"server.aliases={aliases}")
    with shepherd_server(work, *options, model=model) as url:
        command = [str(interpreter), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-o", "addopts=", "-p", "stored_responses"]
        command += [f"{TESTS}/{test}" for test in tests]
        env = {**os.environ, "TEST_API_BASE_URL": url + sdk.base, "PYTHONPATH": str(work)}
        env["SDK"] = sdk.name
        return tested(work / "report.xml", command, cwd=folder, env=env)
