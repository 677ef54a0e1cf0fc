"""acplint, the linter of the Agent Client Protocol, against `shepherd acp`."""

import json
import os
import subprocess
from pathlib import Path

from bench.peers import SHEPHERD
from scripts.conformance.place import python
from scripts.conformance.verdict import Skipped, Verdict

PACKAGE, VERSION = "acplint", "0.1.0"
CONTRARY = {
    "initialize_v1": "protocolVersion as a text",
    "protocol_version_returned": "protocolVersion as a text",
    "schema_initialize": "protocolVersion as a text",
    "new_session": "choices with a label",
    "schema_session_new": "choices with a label",
    "agent_message_chunk_received": "prompts under content, and updates in camel case",
    "prompt_stop_reason": "prompts under content, and updates in camel case",
}
"""Tests that want what the protocol's own schema forbids; the latter is what editors speak."""


def run(work: Path) -> list[Verdict]:
    """All categories, with the built-in model."""
    report = work / "report.json"
    agent = agent_command(work)
    command = [str(python("acp", f"{PACKAGE}=={VERSION}")), "-m", "acplint.cli"]
    command += ["--agent", str(agent), "--cwd", str(work / "project")]
    command += ["--output", "json", "--output-file", str(report), "--timeout", "120"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    if not report.exists():
        raise Skipped(f"acplint made no report: {done.stderr.strip()[-200:]}")
    tests = json.loads(report.read_text("utf-8"))["results"]
    failed = [test for test in tests if test["status"] not in ("PASS", "SKIP")]
    contrary = [test["name"] for test in failed if test["name"] in CONTRARY]
    failures = [f"{t['name']}: {t['message']}" for t in failed if t["name"] not in CONTRARY]
    applicable = len(tests) - len(contrary)
    reasons = dict.fromkeys(CONTRARY[name] for name in contrary)
    left_out = (f"{len(contrary)} want what the protocol's schema forbids: {'; '.join(reasons)}",)
    return [
        Verdict(
            "acplint",
            VERSION,
            applicable - len(failures),
            applicable,
            left_out if contrary else (),
            tuple(failures),
        )
    ]


def agent_command(work: Path) -> Path:
    """A program without arguments that is `shepherd acp` with an empty home."""
    home, agent = work / "home", work / "agent"
    home.mkdir(parents=True, exist_ok=True)
    (work / "project").mkdir(exist_ok=True)
    lines = ["#!/bin/sh", f"export HOME={home} PATH={os.environ['PATH']}"]
    agent.write_text("\n".join([*lines, f"exec {SHEPHERD} --model pup acp", ""]), "utf-8")
    agent.chmod(0o755)
    return agent
