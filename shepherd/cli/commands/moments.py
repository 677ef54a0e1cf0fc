"""Durations and times as users write them."""

import re
from datetime import UTC, date, datetime, time, timedelta

from shepherd.errors import UsageError

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]{1,5})([mhdw])")
_EXAMPLES = "write 30m, 12h, 30d, 8w"


def parse_duration(text: str) -> timedelta:
    """A duration such as `12h`; raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise UsageError(f"{text!r} is not a duration: {_EXAMPLES}.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def parse_expiry(text: str, now: datetime) -> datetime:
    """The time that a duration, a date or an ISO time names; raises UsageError if it is over.

    A date means the end of that day, and a time without a zone is in UTC.
    """
    try:
        end = _time(text.strip(), now).replace(microsecond=0)
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is not a time: {_EXAMPLES}, or a date like 2031-12-31."
        raise UsageError(problem) from error
    if end <= now:
        raise UsageError(f"{text!r} is in the past.")
    return end


def _time(text: str, now: datetime) -> datetime:
    if _DURATION.fullmatch(text):
        return now + parse_duration(text)
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        day = date.fromisoformat(text) + timedelta(days=1)
        return datetime.combine(day, time(), UTC)
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
