"""The programs that start jobs: systemd's timers of the user, or crontab."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from cronsim import CronSim, CronSimError

from shepherd.config.files import write_private
from shepherd.errors import ConfigError, InvalidRequestError
from shepherd.own_programs import path_outside

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ANY_TIME = datetime(2024, 1, 1)  # noqa: DTZ001 - the fields do not depend on it


@dataclass(frozen=True, slots=True)
class CronExpression:
    """The times of a job; `text` is the expression as five fields.

    If neither field of days begins with `*`, one of them is enough, as in cron.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool = False

    def calendars(self) -> list[str]:
        """The same times as expressions for `OnCalendar=`; together they are all times."""
        every_day, every_weekday = tuple(range(1, 32)), tuple(range(7))
        pairs = [(self.days, self.weekdays)]
        if self.either_day:
            pairs = [(self.days, every_weekday), (every_day, self.weekdays)]
        return [self._calendar(days, weekdays) for days, weekdays in pairs]

    def _calendar(self, days: Sequence[int], weekdays: Sequence[int]) -> str:
        week = f"{','.join(_DAYS[day] for day in weekdays)} " if len(weekdays) < 7 else ""
        months, dates = _listed(self.months, 12), _listed(days, 31)
        return f"{week}*-{months}-{dates} {_listed(self.hours, 24)}:{_listed(self.minutes, 60)}:00"


def parse_cron(text: str) -> CronExpression:
    """The expression in `text`, such as `0 9 * * 1-5` or `@daily`.

    Raises InvalidRequestError, also for an expression that fits no day.
    """
    parts = _NICKNAMES.get(text.strip().lower(), text).lower().split()
    if len(parts) != 5:
        raise InvalidRequestError(
            f"{text!r} is not a cron expression: write minute, hour, day, month and day of the "
            "week, as in '0 9 * * 1-5', or one of " + ", ".join(_NICKNAMES)
        )
    expression = " ".join(parts)
    try:
        cron = CronSim(expression, _ANY_TIME)
    except CronSimError as error:
        raise InvalidRequestError(f"{text!r} is not a cron expression: {error}") from error
    weekdays = [day for day in cron.weekdays if isinstance(day, int)]
    if len(weekdays) < len(cron.weekdays) or min(cron.days) < 0:
        # neither systemd nor every cron has them
        raise InvalidRequestError(f"{text!r}: L, W and # can't be used; write numbers and names.")
    return CronExpression(
        expression,
        tuple(sorted(cron.minutes)),
        tuple(sorted(cron.hours)),
        tuple(sorted(cron.days)),
        tuple(sorted(cron.months)),
        tuple(sorted({day % 7 for day in weekdays})),
        either_day=not cron.day_and,
    )


def _listed(values: Sequence[int], count: int) -> str:
    if len(values) == count:
        return "*"
    return ",".join(f"{value:02}" for value in values)


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
