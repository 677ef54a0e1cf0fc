"""google-genai's own tests of its Gemini API, sent to Shepherd.

They run in their mode `api`, in which they call the service. That client takes no address, so it is
given one. The judge is whether the SDK reads the answers as its types; what a test wants of the
model that answers is not.
"""

import os
import re
from collections import Counter
from pathlib import Path

from scripts.conformance.place import commit, python, repository, shepherd_server, tested
from scripts.conformance.verdict import Verdict, counted

PACKAGES = (
    *("google-genai", "pytest", "pytest-asyncio", "pytest-timeout"),
    *("pillow", "mcp<2", "sentencepiece", "protobuf"),
)
WRITTEN = (
    *("count_tokens", "function_call_streaming", "generate_content", "get", "list"),
    *(f"generate_content_{part}" for part in ("config_zero_value", "from_apikey", "http_options")),
    *(f"generate_content_{part}" for part in ("mcp", "model", "thought", "tools")),
)
SHARED = ("count_tokens", "generate_content", "generate_content_stream", "list")
READ = ("embed_content", "generate_content_part", "generate_content_media_resolution")
RUNS = (
    (
        "",
        *(f"tests/models/test_{name}.py" for name in WRITTEN),
        *(f"tests/shared/models/test_{name}.py" for name in SHARED),
        *("tests/chats", "tests/shared/chats"),
    ),
    (
        "vision: yes\ntext: Fine.\n",
        *(f"tests/models/test_{name}.py" for name in READ),
        "tests/shared/models/test_embed.py",
    ),
)
"""The script of the model, "" for the built-in one, and the tests. A scripted one takes images and
makes vectors."""

ADDRESS = '''
"""Sends what is for Google's Gemini API to Shepherd."""
import os
from google.genai import _api_client, types

begin = _api_client.BaseApiClient.__init__

def begin_with_address(self, *args, http_options=None, **others):
    if not others.get("vertexai"):
        sent = types.HttpOptions.model_validate(http_options or {})
        http_options = sent.model_copy(update={"base_url": os.environ["SHEPHERD"]})
    begin(self, *args, http_options=http_options, **others)

_api_client.BaseApiClient.__init__ = begin_with_address
'''
REASONS = (
    (
        r"data of type '|[fF]ile_?[dD]ata is not",
        "audio, video and files of Google's are not supported",
    ),
    (r"xt is served", "only text is served"),
    (r"'message': [\"'](?P<reason>[^'\"]{1,90})", ""),
    (r"Should have raised|DID NOT RAISE", "an error of Google's own is wanted"),
    (r"Name or service not known", "an address of Google's"),
    (r"content-encoding", "answers are not compressed"),
    (r"FunctionCall\.\.\.|\"id\":\"call_", "calls have ids here"),
    (r"Unterminated string", "the built-in model did not end its answer"),
    (
        r"afc|_function|_call|code_execution|multiple_|class_method|schema(?!_with_streaming)",
        "what a large model says or calls is wanted",
    ),
)
"""Why a test that failed does not apply, by what it says and its name: the first that fits."""

WHY = {"AssertionError: assert ''": "the last part of a stream has a signature, and no text"}
"""Why others fail on purpose."""


def verdict(work: Path) -> Verdict:
    """The tests of what Shepherd serves."""
    interpreter, folder = python("genai", *PACKAGES), repository("googleapis/python-genai")
    (work / "to_shepherd.py").write_text(ADDRESS, "utf-8")
    left_out, failures, passed = Counter[str](), list[str](), 0
    for script, *tests in RUNS:
        for name, problem in _results(work, interpreter, folder, script, tests):
            reason = _reason(f"{name}: {problem.splitlines()[0]}") if problem else ""
            if reason:
                left_out[reason] += 1
            elif problem:
                short = name.partition("[")[0].rpartition("tests.")[2]
                said = problem.splitlines()[0][:200]
                failures.append(f"{short}: {WHY.get(said, said)}")
            else:
                passed += 1
    total = passed + len(failures)
    judge = "google-genai's tests of its API"
    return Verdict(judge, commit(folder), passed, total, counted(left_out), tuple(failures))


def _reason(text: str) -> str:
    """Why a test does not apply; "" for a failure."""
    for pattern, reason in REASONS:
        if match := re.search(pattern, text):
            said = match.groupdict().get("reason", "")
            said = re.sub(r"(\w+\.\d+\.)+(\w+\.\d+: )?", "", said)
            return reason or said.partition(". ")[0].removesuffix(".")
    return ""


def _results(
    work: Path, interpreter: Path, folder: Path, script: str, tests: list[str]
) -> list[tuple[str, str]]:
    """The tests with what was wrong, "" if nothing was."""
    path = work / "model.script"
    path.write_text(script, "utf-8")
    options = ("--max-tokens", "300", "--set", 'server.aliases={"*" = "default"}')
    options += ("--set", "sampling.temperature=1.5", "--set", "sampling.seed=7")
    with shepherd_server(work, *options, model=f"script:{path}" if script else "pup") as url:
        command = [str(interpreter), "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-o", "consider_namespace_packages=true", "--timeout", "60"]
        command += ["-p", "to_shepherd", "--mode", "api", *tests]
        env = {**os.environ, "SHEPHERD": url, "PYTHONPATH": f"{folder}:{work}"}
        env |= {"GOOGLE_API_KEY": "none", "GOOGLE_GENAI_RUN_GEMINI_ONLY_IN_API_MODE": "1"}
        env["GOOGLE_GENAI_REPLAYS_DIRECTORY"] = str(work / "replays")
        return tested(work / "report.xml", command, cwd=folder / "google" / "genai", env=env)
