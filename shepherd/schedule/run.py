"""Runs a job: the prompt goes to a new conversation, and the result into the log."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from shepherd.errors import BusyError, ConfigError
from shepherd.json_text import to_json
from shepherd.schedule.jobs import Job, JobStore, Run

MAX_OUTPUT = 65_536
"""Characters of an answer, and of the errors, in the log."""

SKIPPED, FAILED, DENIED = 75, 1, 3
_EXIT_CODES = {"stop": 0, "length": 0, "cancelled": 130}


def program() -> list[str]:
    """The words that start this program; nothing is imported from the current directory."""
    return [sys.executable, "-P", "-m", "shepherd"]


def run_job(store: JobStore, name: str, env: Mapping[str, str]) -> Run:
    """Run a job to its end, and log it.

    Raises BusyError, after logging that the run was skipped, if the job runs already. Raises
    ConfigError if the job's files are broken or its directory is missing.
    """
    job, prompt = store.load(name), store.prompt(name)
    with store.running(name) as is_free:
        if not is_free:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            text = "skipped: the run before has not ended"
            store.log(name, Run(started=now, seconds=0, exit_code=SKIPPED, output=text))
            raise BusyError(f"The job {name} runs already; this run is skipped.")
        run = _run(job, prompt, {**env, **job.environment})
        store.log(name, run)
    return run


def _run(job: Job, prompt: str, env: Mapping[str, str]) -> Run:
    started, begin = datetime.now(UTC), time.monotonic()
    arguments = ["--json", *(["--model", job.model] if job.model else [])]
    arguments += ["--approve", job.approve.value] if job.approve else []
    if not Path(job.cwd).is_dir():
        raise ConfigError(f"The directory of the job {job.name} is missing: {job.cwd}")
    ended = subprocess.run(
        [*program(), *arguments],
        input=f"{to_json({'type': 'user', 'content': prompt})}\n",
        cwd=job.cwd,
        env=env,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    result = _result(ended.stdout)
    code = ended.returncode or result.exit_code
    errors = "\n".join(text for text in (result.output, ended.stderr.strip()) if text)
    output = errors if code else result.output
    seconds = round(time.monotonic() - begin, 3)
    return result.model_copy(
        update={
            "started": started.isoformat(timespec="seconds"),
            "seconds": seconds,
            "exit_code": code,
            "output": output[:MAX_OUTPUT],
        }
    )


def _result(lines: str) -> Run:
    """The answer after the last result of a tool, and the end of the turn."""
    texts: list[str] = []
    run = Run(started="", seconds=0, exit_code=FAILED)
    for line in lines.splitlines():
        item = cast(dict[str, Any], json.loads(line))
        match item.get("type"):
            case "text":
                texts.append(str(item["content"]))
            case "tool_use":
                texts.clear()
            case "error":
                texts.append(f"Error: {item['message']}\n")
            case "end_turn":
                denied = int(item.get("denied", 0))
                code = _EXIT_CODES.get(str(item["reason"]), FAILED)
                code = DENIED if denied and not code else code
                session = str(item["session"])
                run = run.model_copy(
                    update={"exit_code": code, "session": session, "denied": denied}
                )
            case _:
                pass
    return run.model_copy(update={"output": "".join(texts)})
