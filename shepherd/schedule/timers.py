"""The programs that start jobs: systemd's timers of the user, or crontab."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from shepherd.config.files import write_private
from shepherd.errors import ConfigError
from shepherd.own_programs import path_outside
from shepherd.schedule.cron import CronExpression

SECONDS = 30.0
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


class Timer(Protocol):
    """Starts `command` at set times."""

    name: str

    def add(self, job: str, cron: CronExpression, command: "JobCommand") -> None:
        """Start a job at its times; raises ConfigError."""
        ...

    def remove(self, job: str) -> None:
        """Stop doing so; raises ConfigError."""
        ...


class JobCommand:
    """The command line of a job and the variables that it needs.

    Raises ConfigError for a control character, which the files of timers can't hold.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        for text in (*words, *environment.values()):
            if _UNSAFE.search(text):
                raise ConfigError(f"{text!r} has a control character; timers can't hold it.")
        self.words = list(words)
        self.environment = dict(environment)


class SystemdTimer:
    """A service and a timer in the user's directory of units."""

    name = "systemd"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @staticmethod
    def works() -> bool:
        """Whether the user has a running service manager."""
        if _program("systemctl") is None:
            return False
        return _run(["systemctl", "--user", "show-environment"]).returncode == 0

    def add(self, job: str, cron: CronExpression, command: JobCommand) -> None:
        """See `Timer`; systemd itself checks the times if it has the program for it."""
        calendars = cron.calendars()
        if _program("systemd-analyze") is not None:
            _checked(["systemd-analyze", "calendar", *calendars])
        write_private(self._path(job, "service"), _service(job, command))
        write_private(self._path(job, "timer"), _timer(job, calendars))
        try:
            _checked(["systemctl", "--user", "daemon-reload"])
            _checked(["systemctl", "--user", "enable", "--now", self._path(job, "timer").name])
        except ConfigError:
            self._delete(job)
            raise

    def remove(self, job: str) -> None:
        """See `Timer`."""
        timer = self._path(job, "timer")
        if timer.exists():
            _checked(["systemctl", "--user", "disable", "--now", timer.name])
        self._delete(job)
        _checked(["systemctl", "--user", "daemon-reload"])

    def _path(self, job: str, kind: str) -> Path:
        return self._directory / f"shepherd-{job}.{kind}"

    def _delete(self, job: str) -> None:
        for kind in ("timer", "service"):
            self._path(job, kind).unlink(missing_ok=True)


class Crontab:
    """A marked block in the user's crontab; all other lines stay as they are."""

    name = "cron"

    @staticmethod
    def works() -> bool:
        """Whether there is the program `crontab`."""
        return _program("crontab") is not None

    def add(self, job: str, cron: CronExpression, command: JobCommand) -> None:
        """See `Timer`."""
        variables = [f"{name}={value}" for name, value in command.environment.items()]
        line = shlex.join(["env", *variables, *command.words] if variables else command.words)
        line = line.replace("%", r"\%")  # cron ends the command at a bare %
        begin, end = _marks(job)
        others = _without(self._read(), job)
        gap = "\n" if others and not others.endswith("\n") else ""
        self._write(f"{others}{gap}{begin}\n{cron.text} {line}\n{end}\n")

    def remove(self, job: str) -> None:
        """See `Timer`."""
        before = self._read()
        after = _without(before, job)
        if after != before:
            self._write(after)

    def _read(self) -> str:
        result = _run(["crontab", "-l"])
        if result.returncode != 0 and "no crontab" not in result.stderr:
            raise ConfigError(f"crontab -l failed: {result.stderr.strip()}")
        return result.stdout if result.returncode == 0 else ""

    def _write(self, text: str) -> None:
        _checked(["crontab", "-"], text)


def choose_timer(name: str, units: Path) -> Timer:
    """The timer with this name, or the first one that works here; raises ConfigError."""
    systemd, cron = SystemdTimer(units), Crontab()
    if name == systemd.name or (not name and systemd.works()):
        return systemd
    if name == cron.name or (not name and cron.works()):
        return cron
    raise ConfigError(
        "Neither systemd's timers for users nor crontab work here. Install cron, or log in with a "
        "user session of systemd."
    )


def _service(job: str, command: JobCommand) -> str:
    words = " ".join(_quoted(word).replace("$", "$$") for word in command.words)
    lines = [f"Environment={_quoted(f'{n}={v}')}" for n, v in command.environment.items()]
    variables = "".join(f"{line}\n" for line in lines)
    return (
        f"[Unit]\nDescription=Scheduled prompt {job} of Shepherd\n\n"
        f"[Service]\nType=oneshot\n{variables}ExecStart={words}\n"
    )


def _timer(job: str, calendars: Sequence[str]) -> str:
    times = "".join(f"OnCalendar={calendar}\n" for calendar in calendars)
    return (
        f"[Unit]\nDescription=Times of the scheduled prompt {job} of Shepherd\n\n"
        f"[Timer]\n{times}Persistent=true\n\n[Install]\nWantedBy=timers.target\n"
    )


def _quoted(text: str) -> str:
    """A word of a unit file, in which `%` has no meaning."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _marks(job: str) -> tuple[str, str]:
    return f"# BEGIN shepherd schedule {job}", f"# END shepherd schedule {job}"


def _without(text: str, job: str) -> str:
    """The crontab without the block of a job; raises ConfigError if the block has no end."""
    begin, end = _marks(job)
    lines = text.splitlines(keepends=True)
    bare = [line.rstrip("\n") for line in lines]
    if begin not in bare:
        return text
    first = bare.index(begin)
    if end not in bare[first:]:
        raise ConfigError(f"The crontab has no line {end!r}; repair it with `crontab -e`.")
    last = bare.index(end, first)
    return "".join([*lines[:first], *lines[last + 1 :]])


def _program(name: str) -> str | None:
    """The path of a program; none that a model could have written into the working directory."""
    return shutil.which(name, path=path_outside(Path.cwd()))


def _checked(argv: Sequence[str], text: str = "") -> None:
    result = _run(argv, text)
    if result.returncode != 0:
        problem = result.stderr.strip() or f"exit code {result.returncode}"
        raise ConfigError(f"`{shlex.join(argv[:3])}` failed: {problem}")


def _run(argv: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    program = _program(argv[0])
    if program is None:
        raise ConfigError(f"`{shlex.join(argv[:3])}` failed: {argv[0]} is not installed")
    try:
        return subprocess.run(
            [program, *argv[1:]],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"`{shlex.join(argv[:3])}` failed: {error}") from error
