"""The scheduled prompts of a user, and the log of their runs, in private files."""

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shepherd.config.choices import ApproveMode
from shepherd.config.files import make_private_directory, read_text, write_private
from shepherd.errors import ConfigError, InvalidRequestError

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
    approve: ApproveMode | None = None
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


class JobStore:
    """A directory for each job below `root`, which only the user can read."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """The names of all jobs."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if (entry / _JOB).is_file())

    def load(self, name: str) -> Job:
        """A job; raises InvalidRequestError if there is none, ConfigError if its file is broken."""
        path = self._directory(name) / _JOB
        try:
            return Job.model_validate_json(read_text(path, MAX_JOB))
        except FileNotFoundError as error:
            hint = "`shepherd schedule list` shows the jobs."
            raise InvalidRequestError(f"There is no job {name!r}; {hint}") from error
        except ValidationError as error:
            raise ConfigError(f"{path}: not a job; remove it and add the job again") from error

    def prompt(self, name: str) -> str:
        """The prompt of a job; raises ConfigError if its file is missing or too long."""
        path = self._directory(name) / _PROMPT
        try:
            return read_text(path, MAX_PROMPT)
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: missing; remove the job and add it again") from error

    def add(self, job: Job, prompt: str) -> None:
        """Store a new job; raises InvalidRequestError if the name is taken."""
        if len(prompt.encode()) > MAX_PROMPT:
            raise InvalidRequestError(f"The prompt is longer than {MAX_PROMPT} bytes.")
        directory = self._directory(job.name)
        make_private_directory(self.root)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError as error:
            raise InvalidRequestError(
                f"There is a job {job.name!r} already; remove it, or use another --name."
            ) from error
        write_private(directory / _PROMPT, prompt)
        write_private(directory / _JOB, job.model_dump_json(indent=2))

    def remove(self, name: str) -> None:
        """Delete a job and its log; raises InvalidRequestError if there is none."""
        self.load(name)
        directory = self._directory(name)
        (directory / _JOB).unlink()
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
        write_private(self._directory(name) / _LOG, text)

    @contextmanager
    def running(self, name: str) -> Generator[bool]:
        """Hold the job's lock; False in the context if a run of the job holds it already."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self._directory(name) / _LOCK, flags, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(lock)

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
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
