"""The scheduled prompts of a user, and the log of their runs, in private files."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shepherd.config import files, section
from shepherd.errors import BusyError, ConfigError, InvalidRequestError
from shepherd.json_text import to_json
from shepherd.own_programs import path_outside

MAX_JOB = 65_536
MAX_PROMPT = 1_048_576
MAX_RUNS = 200
"""Runs in the log; the oldest go first."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_JOB, _PROMPT, _LOG, _LOCK = "job.json", "prompt.txt", "runs.jsonl", "lock"


class Job(BaseModel):
    """A prompt and its times; `cron` has five fields, and `timer` names the program behind it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=_NAME.pattern)]
    cron: str
    cwd: str
    timer: str
    model: str = ""
    approve: section.ApproveMode | None = None
    environment: dict[str, str] = {}


class Run(BaseModel):
    """One run of a job; `seconds` is its duration."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    started: str
    seconds: float
    exit_code: int
    output: str = ""
    session: str = ""
    denied: int = 0


class JobStore(Struct, frozen=True):
    """A directory for each job below `root`, which only the user can read."""

    root: Path

    def names(self) -> list[str]:
        """The names of all jobs."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if (entry / _JOB).is_file())

    def load(self, name: str) -> Job:
        """A job; raises InvalidRequestError if there is none, ConfigError if its file is broken."""
        path = self._directory(name) / _JOB
        try:
            return Job.model_validate_json(files.read_text(path, MAX_JOB))
        except FileNotFoundError as error:
            hint = "`shepherd schedule list` shows the jobs."
            raise InvalidRequestError(f"There is no job {name!r}; {hint}") from error
        except ValidationError as error:
            raise ConfigError(f"{path}: not a job; remove it and add the job again") from error

    def prompt(self, name: str) -> str:
        """The prompt of a job; raises ConfigError if its file is missing or too long."""
        path = self._directory(name) / _PROMPT
        try:
            return files.read_text(path, MAX_PROMPT)
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: missing; remove the job and add it again") from error

    def add(self, job: Job, prompt: str) -> None:
        """Store a new job; raises InvalidRequestError if the name is taken."""
        if len(prompt.encode()) > MAX_PROMPT:
            raise InvalidRequestError(f"The prompt is longer than {MAX_PROMPT} bytes.")
        directory = self._directory(job.name)
        files.make_private_directory(self.root)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError as error:
            raise InvalidRequestError(
                f"There is a job {job.name!r} already; remove it, or use another --name."
            ) from error
        files.write_private(directory / _PROMPT, prompt)
        files.write_private(directory / _JOB, job.model_dump_json(indent=2))

    def remove(self, name: str) -> None:
        """Delete a job and its log; raises InvalidRequestError if there is none."""
        self.load(name)  # only for its errors
        directory = self._directory(name)
        (directory / _JOB).unlink()  # first: without it the directory is no job any more
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()

    def runs(self, name: str) -> list[Run]:
        """The logged runs, the oldest first; broken lines are left out."""
        try:
            lines = (self._directory(name) / _LOG).read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        runs: list[Run] = []
        for line in lines:
            try:
                runs.append(Run.model_validate_json(line))
            except ValidationError:
                continue
        return runs

    def log(self, name: str, run: Run) -> None:
        """Append a run to the job's log."""
        runs = [*self.runs(name), run][-MAX_RUNS:]
        text = "".join(f"{entry.model_dump_json()}\n" for entry in runs)
        files.write_private(self._directory(name) / _LOG, text)

    @contextmanager
    def running(self, name: str) -> Generator[bool]:
        """Hold the job's lock; False in the context if a run of the job holds it already."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self._directory(name) / _LOCK, flags, 0o600)
        is_free = True
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free = False
            yield is_free
        finally:
            os.close(lock)  # which frees it, as the end of the process does

    def _directory(self, name: str) -> Path:
        check_name(name)
        return self.root / name


def check_name(name: str) -> None:
    """Raise InvalidRequestError for a name that can't be a job's."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} can't be a job's name: use at most 40 of a-z, 0-9 and -, and begin with a "
            "letter or digit."
        )


def name_for(prompt: str, taken: list[str]) -> str:
    """A new name from the first words of a prompt."""
    words = re.findall(r"[a-z0-9]+", prompt.lower())
    base = "-".join(words[:4])[:30].strip("-") or "job"
    # one more number than there are names, so that one is free
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


MAX_OUTPUT = 65_536
"""Characters of an answer, and of the errors, in the log."""

SKIPPED, FAILED, DENIED = 75, 1, 3
"""Exit codes of a run."""

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
        run = _completed_run(job, prompt, {**env, **job.environment})
        store.log(name, run)
    return run


def _completed_run(job: Job, prompt: str, env: Mapping[str, str]) -> Run:
    """Send the prompt to a new process of this program, and wait for its end."""
    started_at, start = datetime.now(UTC), time.monotonic()
    arguments = ["--json"]
    if job.model:
        arguments += ["--model", job.model]
    if job.approve:
        arguments += ["--approve", job.approve.value]
    if not Path(job.cwd).is_dir():
        raise ConfigError(f"The directory of the job {job.name} is missing: {job.cwd}")
    modules = path_outside(Path(job.cwd), env.get("PYTHONPATH", ""))
    process = subprocess.run(
        [*program(), *arguments],
        input=f"{to_json({'type': 'user', 'content': prompt})}\n",
        cwd=job.cwd,
        env={**env, "PYTHONPATH": modules},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    answer = _answer_in(process.stdout)
    exit_code = process.returncode or answer.exit_code
    output = answer.output
    if exit_code:  # what it wrote to stderr explains the failure
        output = "\n".join(filter(None, [output, process.stderr.strip()]))
    return answer.model_copy(
        update={
            "started": started_at.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - start, 3),
            "exit_code": exit_code,
            "output": output[:MAX_OUTPUT],
        }
    )


def _answer_in(lines: str) -> Run:
    """The answer after the last result of a tool, and the end of the turn.

    `lines` are the events that `--json` prints. Without an end the run has failed.
    """
    texts: list[str] = []
    run = Run(started="", seconds=0, exit_code=FAILED)
    for line in lines.splitlines():
        item = cast(dict[str, Any], json.loads(line))
        match item.get("type"):
            case "text":
                texts.append(str(item["content"]))
            case "tool_use":  # what was said before was not the answer
                texts.clear()
            case "error":
                texts.append(f"Error: {item['message']}\n")
            case "end_turn":
                denied = int(item.get("denied", 0))
                code = _EXIT_CODES.get(str(item["reason"]), FAILED)
                if denied and code == 0:
                    code = DENIED
                end = {"exit_code": code, "session": str(item["session"]), "denied": denied}
                run = run.model_copy(update=end)
            case _:
                pass
    return run.model_copy(update={"output": "".join(texts)})
