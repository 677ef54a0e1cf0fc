"""The programs that start jobs: systemd's timers of the user, or crontab."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from cronsim import CronSim, CronSimError
from msgspec import Struct

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
_ANY_TIME = datetime(2024, 1, 1, tzinfo=UTC)  # the fields do not depend on it


class CronExpression(Struct, frozen=True):
    """The times of a job: five fields of cron, and the same as expressions for `OnCalendar=`.

    All calendars together are all times.
    """

    text: str
    calendars: list[str]


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
    numbers = [day for day in cron.weekdays if isinstance(day, int)]
    if len(numbers) < len(cron.weekdays) or min(cron.days) < 0:
        # neither systemd nor every cron has them
        raise InvalidRequestError(f"{text!r}: L, W and # can't be used; write numbers and names.")
    weekdays = sorted({day % 7 for day in numbers})  # both 0 and 7 are Sunday
    # every day of the week is written as no day at all
    week = f"{','.join(_DAYS[day] for day in weekdays)} " if len(weekdays) < 7 else ""
    days, months = _listed(cron.days, 31), _listed(cron.months, 12)
    time = f"{_listed(cron.hours, 24)}:{_listed(cron.minutes, 60)}:00"
    if cron.day_and:
        return CronExpression(expression, [f"{week}*-{months}-{days} {time}"])
    # neither field of days begins with `*`: then one of them is enough, as in cron
    return CronExpression(expression, [f"*-{months}-{days} {time}", f"{week}*-{months}-* {time}"])


def _listed(values: Collection[int], count: int) -> str:
    """The values as systemd writes them, such as `01,15`; `*` for all `count` of them."""
    return "*" if len(values) == count else ",".join(f"{value:02}" for value in sorted(values))


SECONDS = 30.0
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


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


class SystemdTimer(Struct, frozen=True):
    """A service and a timer in `units`, the user's directory of units."""

    units: Path
    name = "systemd"

    @staticmethod
    def works() -> bool:
        """Whether the user has a running service manager."""
        if _program("systemctl") is None:
            return False
        return _run(["systemctl", "--user", "show-environment"]).returncode == 0

    def add(self, job: str, cron: CronExpression, command: JobCommand) -> None:
        """Start a job at its times; raises ConfigError.

        Systemd itself checks the times if it has the program for it.
        """
        if _program("systemd-analyze") is not None:
            _run_checked(["systemd-analyze", "calendar", *cron.calendars])
        timer = self._path(job, "timer")
        write_private(self._path(job, "service"), _service_unit(job, command))
        write_private(timer, _timer_unit(job, cron.calendars))
        try:
            _run_checked(["systemctl", "--user", "daemon-reload"])
            _run_checked(["systemctl", "--user", "enable", "--now", timer.name])
        except ConfigError:
            self._delete(job)  # files that stay behind would start the job after the next login
            raise

    def remove(self, job: str) -> None:
        """Stop starting a job; raises ConfigError."""
        timer = self._path(job, "timer")
        if timer.exists():
            _run_checked(["systemctl", "--user", "disable", "--now", timer.name])
        self._delete(job)
        _run_checked(["systemctl", "--user", "daemon-reload"])

    def _path(self, job: str, kind: str) -> Path:
        return self.units / f"shepherd-{job}.{kind}"

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
        """Start a job at its times; raises ConfigError."""
        variables = [f"{name}={value}" for name, value in command.environment.items()]
        line = shlex.join(["env", *variables, *command.words] if variables else command.words)
        line = line.replace("%", r"\%")  # cron ends the command at a bare %
        begin, end = _marks(job)
        others = _without_block(self._read(), job)
        gap = "\n" if others and not others.endswith("\n") else ""
        _run_checked(["crontab", "-"], f"{others}{gap}{begin}\n{cron.text} {line}\n{end}\n")

    def remove(self, job: str) -> None:
        """Stop starting a job; raises ConfigError."""
        before = self._read()
        after = _without_block(before, job)
        if after != before:
            _run_checked(["crontab", "-"], after)

    def _read(self) -> str:
        """The user's crontab, "" without one; raises ConfigError."""
        result = _run(["crontab", "-l"])
        if result.returncode != 0 and "no crontab" not in result.stderr:  # "no crontab for me"
            raise ConfigError(f"crontab -l failed: {result.stderr.strip()}")
        return result.stdout if result.returncode == 0 else ""


Timer: TypeAlias = SystemdTimer | Crontab


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


def _service_unit(job: str, command: JobCommand) -> str:
    """The file of the service; in its command a plain `$` is written twice."""
    words = " ".join(_quoted(word).replace("$", "$$") for word in command.words)
    lines = [f"Environment={_quoted(f'{n}={v}')}" for n, v in command.environment.items()]
    variables = "".join(f"{line}\n" for line in lines)
    return (
        f"[Unit]\nDescription=Scheduled prompt {job} of Shepherd\n\n"
        f"[Service]\nType=oneshot\n{variables}ExecStart={words}\n"
    )


def _timer_unit(job: str, calendars: Sequence[str]) -> str:
    """The file of the timer; a run that was missed while the machine was off is made up for."""
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
    """The lines around a job's block."""
    return f"# BEGIN shepherd schedule {job}", f"# END shepherd schedule {job}"


def _without_block(text: str, job: str) -> str:
    """The crontab without the block of a job; raises ConfigError if the block has no end."""
    begin, end = _marks(job)
    lines = text.splitlines(keepends=True)
    bare_lines = [line.rstrip("\n") for line in lines]
    if begin not in bare_lines:
        return text
    first = bare_lines.index(begin)
    if end not in bare_lines[first:]:  # all that follows would be lost otherwise
        raise ConfigError(f"The crontab has no line {end!r}; repair it with `crontab -e`.")
    last = bare_lines.index(end, first)
    return "".join([*lines[:first], *lines[last + 1 :]])


def _program(name: str) -> str | None:
    """The path of a program; none that a model could have written into the working directory."""
    return shutil.which(name, path=path_outside(Path.cwd()))


def _run_checked(argv: Sequence[str], text: str = "") -> None:
    """Run a program with `text` as its input; raises ConfigError if it fails."""
    result = _run(argv, text)
    if result.returncode != 0:
        problem = result.stderr.strip() or f"exit code {result.returncode}"
        raise ConfigError(f"`{shlex.join(argv[:3])}` failed: {problem}")


def _run(argv: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program to its end; raises ConfigError if it can't be started or takes too long."""
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
