"""Open Responses' own templates and schema, on `/v1/responses` over HTTP.

Its runner is for Bun, which npm has; it wants Zod beside it, so its sources are copied to a folder
that has both.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from scripts.conformance.place import commit, node, repository, shepherd_server
from scripts.conformance.verdict import Skipped, Verdict

SEEING = "image-input"
LEFT_OUT = (
    "WebSockets are not served, the same requests are served as streams ({count})",
    "a scripted model answers the template with an image, as the built-in one does not see",
)


def run(work: Path) -> list[Verdict]:
    """All templates, except those for a transport that is not served."""
    sources = repository("openresponses/openresponses")
    packages = node("responses", "bun@1", "zod@3")
    for folder in ("bin", "src"):
        shutil.copytree(sources / folder, work / folder)
    (work / "node_modules").symlink_to(packages / "node_modules")
    (work / "seeing.script").write_text("text: A red square.\n", "utf-8")
    seeing = _results(work, f"script:{work / 'seeing.script'}", "--filter", SEEING)
    results = [result for result in _results(work, "pup") if result["id"] != SEEING] + seeing
    applicable = [result for result in results if "websocket" not in result["id"]]
    failures = [
        f"{result['name']}: {'; '.join(result['errors'])}"
        for result in applicable
        if result["status"] != "passed"
    ]
    return [
        Verdict(
            judge="Open Responses",
            version=commit(sources),
            passed=len(applicable) - len(failures),
            applicable=len(applicable),
            left_out=tuple(text.format(count=len(results) - len(applicable)) for text in LEFT_OUT),
            failures=tuple(failures),
        )
    ]


def _results(work: Path, model: str, *options: str) -> list[dict[str, Any]]:
    """What its runner says of each template."""
    with shepherd_server(work, model=model) as url:
        command = ["node_modules/.bin/bun", "run", "bin/compliance-test.ts", "--json"]
        command += ["--base-url", f"{url}/v1", "--api-key", "none", "--model", "default", *options]
        done = subprocess.run(command, cwd=work, check=False, capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        raise Skipped(f"its runner failed ({done.stderr.strip()[-200:]})")
    return json.loads(done.stdout)["results"]
