"""Parses cron's expressions, and writes them as systemd's calendar expressions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from shepherd.errors import InvalidRequestError

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
DAYS = "sun mon tue wed thu fri sat"
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(\*|[0-9a-z]{1,3}(?:-[0-9a-z]{1,3})?)(?:/([0-9]{1,2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the expression: its name, its range, and the names of its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, tuple(MONTHS.split()), 1),
    _Field("day of the week", 0, 7, tuple(DAYS.split())),
)


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

    def falls_on(self, day: date) -> bool:
        """Whether the job runs on a day."""
        in_month = day.day in self.days
        in_week = day.isoweekday() % 7 in self.weekdays
        is_day = in_month or in_week if self.either_day else in_month and in_week
        return is_day and day.month in self.months

    def _calendar(self, days: Sequence[int], weekdays: Sequence[int]) -> str:
        names = [DAYS.split()[day].capitalize() for day in weekdays]
        week = f"{','.join(names)} " if len(weekdays) < 7 else ""
        months, dates = _listed(self.months, 12), _listed(days, 31)
        return f"{week}*-{months}-{dates} {_listed(self.hours, 24)}:{_listed(self.minutes, 60)}:00"


def parse_cron(text: str) -> CronExpression:
    """The expression in `text`, such as `0 9 * * 1-5` or `@daily`.

    Raises InvalidRequestError, also for an expression that fits no day.
    """
    expression = _NICKNAMES.get(text.strip().lower(), text).lower().split()
    if len(expression) != len(_FIELDS):
        raise InvalidRequestError(
            f"{text!r} is not a cron expression: write minute, hour, day, month and day of the "
            "week, as in '0 9 * * 1-5', or one of " + ", ".join(_NICKNAMES)
        )
    values = [_values(field, part) for field, part in zip(_FIELDS, expression, strict=True)]
    minutes, hours, days, months, week = values
    weekdays = tuple(sorted({day % 7 for day in week}))
    either = not expression[2].startswith("*") and not expression[4].startswith("*")
    cron = CronExpression(" ".join(expression), minutes, hours, days, months, weekdays, either)
    if not _occurs(cron):
        raise InvalidRequestError(f"{text!r} fits no day: no such month has that many days.")
    return cron


def _values(field: _Field, text: str) -> tuple[int, ...]:
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        step = int(match[2]) if match and match[2] else 1
        if match is None or step == 0:
            raise _bad(field, part)
        low, high = _range(field, match[1], open_end=match[2] is not None)
        if low > high:
            raise _bad(field, part)
        values.update(range(low, high + 1, step))
    return tuple(sorted(values))


def _range(field: _Field, text: str, *, open_end: bool) -> tuple[int, int]:
    if text == "*":
        return field.low, field.high
    begin, dash, end = text.partition("-")
    low = _number(field, begin)
    if dash:
        return low, _number(field, end)
    return low, field.high if open_end else low


def _number(field: _Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.first
    if not text.isdigit() or not field.low <= int(text) <= field.high:
        raise _bad(field, text)
    return int(text)


def _bad(field: _Field, text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text!r} is not a {field.name}: write numbers from {field.low} to {field.high}, "
        "as in 1,15 or 1-5 or */2."
    )


def _occurs(cron: CronExpression) -> bool:
    """Whether the expression fits any day; the calendar repeats after 28 years."""
    start = date(2024, 1, 1)
    return any(cron.falls_on(start + timedelta(days=n)) for n in range(28 * 366))


def _listed(values: Sequence[int], count: int) -> str:
    if len(values) == count:
        return "*"
    return ",".join(f"{value:02}" for value in values)
