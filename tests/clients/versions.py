"""The versions of the clients that ran, which `make test-clients` writes into docs/clients.md."""

import importlib.metadata
import json
import re
import shutil
import subprocess
from collections.abc import Mapping

from tests.clients import agents, page
from tests.clients.test_javascript import PACKAGES, modules
from tests.patience import PATIENCE

DISTRIBUTIONS = {
    "autogen": "autogen-agentchat",
    "haystack": "haystack-ai",
    "llama-index": "llama-index-llms-openai-like",
    "pydantic-ai": "pydantic-ai-slim",
    "strands": "strands-agents",
}
"""The names on PyPI of clients whose own name is another."""
PROGRAMS = {
    "aider": "aider",
    **{one.name: one.program for one in vars(agents).values() if isinstance(one, agents.Agent)},
}


def version(client: str) -> str:
    """The version of an installed client."""
    if client in PACKAGES:
        package = PACKAGES[client]
        return json.loads((modules(package) / package / "package.json").read_text())["version"]
    if client not in PROGRAMS:
        return importlib.metadata.version(DISTRIBUTIONS.get(client, client))
    program = shutil.which(PROGRAMS[client]) or ""
    told = subprocess.run(
        [program, "--version"], check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    found = re.search(r"\d+(\.\d+)+", told.stdout + told.stderr)
    assert found is not None, told
    return found[0]


def with_versions(text: str, versions: Mapping[tuple[str, str], str]) -> str:
    """The page with the versions of these rows, by client and API."""

    def renewed(line: str) -> str:
        row = page.ROW.match(line)
        found = row and versions.get((row["client"], row["api"]))
        if not (row and found):
            return line
        return line[: row.start("version")] + found + line[row.end("version") :]

    return "".join(map(renewed, text.splitlines(keepends=True)))
