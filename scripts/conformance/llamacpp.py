"""llama.cpp's own tests of its server, from the sources of llama-cpp-python.

`tests/clients/llamacpp` starts this server for them in the place of `llama-server`. Most are made
for a model that has to be downloaded, and hold the text that it writes.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from scripts.conformance.place import cases, sdist
from scripts.conformance.verdict import Skipped, Verdict

FOLDER = "vendor/llama.cpp/tools/server/tests"
NOT_HERE: Mapping[str, str] = {
    "downloads a file|huggingface|MaxRetryError": "a file that has to be downloaded",
    "nothing at this path": "an endpoint that is not served",
    "died with return code": "an option of llama-server",
    r"(?m)^>.*(match_regex|n_prompt|prompt_n|prompt_tokens|cached|usage|n_predicted|predicted_n)": (
        "the exact text or numbers of a model that has to be downloaded"
    ),
}
FILES: Mapping[str, str] = {
    "test_router": "processes of its own for models: here they are one server's",
    "test_sleep": "a server that sleeps: here idle models are unloaded",
    "test_mcp_servers": "MCP servers of the page in a browser",
    "test_proxy": "a proxy for the page in a browser",
    "test_tools_builtin": "tools that its server runs for a page",
    "test_vision_api": "a model with images that has to be downloaded",
    "test_lora": "adapters of a model that has to be downloaded",
    "test_speculative": "a second model that has to be downloaded",
    "test_compat_gcp": "the format of Google Cloud",
}
"""Files whose tests need what Shepherd does not have, if they fail."""


def run(work: Path) -> list[Verdict]:
    """All tests that are not marked as slow."""
    release = version("llama-cpp-python")
    folder = sdist("llama_cpp_python", release) / FOLDER
    report = work / "report.xml"
    command = [sys.executable, "-m", "tests.clients.llamacpp", str(folder), "-q", "-n", "0"]
    command += ["-o", "addopts=", "-W", "ignore", "--timeout", "60", f"--junitxml={report}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if not report.exists():
        raise Skipped(f"its tests did not run ({done.stdout[-200:]})")
    left_out, failed, passed = Counter[str](), Counter[tuple[str, str]](), 0
    for name, problem in cases(report):
        file = name.split(".")[1]
        reasons = (why for pattern, why in NOT_HERE.items() if re.search(pattern, problem))
        if not problem:
            passed += 1
        elif reason := FILES.get(file) or next(reasons, None):
            left_out[reason] += 1
        else:
            failed[file, name.partition("[")[0].rpartition(".")[2]] += 1
    return [
        Verdict(
            "llama.cpp's tests of its server",
            f"that of llama-cpp-python {release}",
            passed,
            passed + failed.total(),
            tuple(f"{reason} ({count})" for reason, count in left_out.most_common()),
            tuple(f"{file}, {name} ({count})" for (file, name), count in failed.items()),
        )
    ]
