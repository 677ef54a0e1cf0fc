"""The compatibility kit of the Agent Client Protocol, against `shepherd acp`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.conformance.acp import agent_command
from scripts.conformance.place import commit, repository
from scripts.conformance.verdict import Skipped, Verdict

PROMPT = "List the numbers from one to five hundred, each on a line of its own."


def run(work: Path) -> list[Verdict]:
    """All requirements of the protocol's version 1; advice and information are not counted."""
    kit = repository("agentclientprotocol/acp-tck")
    report = work / "report.json"
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    command = [uv, "--project", str(kit), "run", "acp-tck", "--report-json", str(report)]
    command += ["--agent-cwd", str(work), "--timeout", "90", "--cancel-prompt", PROMPT]
    command += ["--", str(agent_command(work))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=3600)
    if not report.exists():
        raise Skipped(f"the kit made no report: {done.stderr.strip()[-200:]}")
    found = json.loads(report.read_text("utf-8"))
    counted = [r for r in found["requirements"] if r["tier"] in ("MANDATORY", "CAPABILITY")]
    unused = [r for r in counted if r["status"] == "SKIPPED" and r["tier"] == "CAPABILITY"]
    failed = [r for r in counted if r["status"] != "PASS" and r not in unused]
    name = "CONFORMANT" if found["verdict"]["conformant"] else "NOT CONFORMANT"
    return [
        Verdict(
            f"ACP TCK, {name}",
            commit(kit),
            len(counted) - len(unused) - len(failed),
            len(counted) - len(unused),
            (f"capabilities that Shepherd does not offer ({len(unused)})",) if unused else (),
            tuple(f"{requirement['id']}: {requirement['text']}" for requirement in failed),
        )
    ]
