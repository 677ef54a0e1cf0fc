"""Reads cron's expressions, and writes them as systemd's calendar expressions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim, CronSimError

from shepherd.errors import InvalidRequestError

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
