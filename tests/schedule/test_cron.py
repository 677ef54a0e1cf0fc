"""Cron's expressions, and the same times for systemd."""

import shutil
import subprocess
from datetime import date, datetime, time, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.errors import InvalidRequestError
from shepherd.schedule.timers import parse_cron
from tests.examples import examples

EXPRESSIONS = {
    "0 9 * * 1-5": ["Mon,Tue,Wed,Thu,Fri *-*-* 09:00:00"],
    "@daily": ["*-*-* 00:00:00"],
    "*/20 8-10 1,15 jan,Jul *": ["*-01,07-01,15 08,09,10:00,20,40:00"],
    "0 0 1 * 0": ["*-*-01 00:00:00", "Sun *-*-* 00:00:00"],
    "5/25 0 */10 * sun": ["Sun *-*-01,11,21,31 00:05,30,55:00"],
    "0 0 * * 7": ["Sun *-*-* 00:00:00"],
    "0 0 * * 5-7": ["Sun,Fri,Sat *-*-* 00:00:00"],
}


@pytest.mark.parametrize(("text", "calendars"), EXPRESSIONS.items())
def test_the_same_times_for_systemd(text: str, calendars: list[str]) -> None:
    assert parse_cron(text).calendars == calendars


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_understands_them() -> None:
    calendars = [calendar for texts in EXPRESSIONS.values() for calendar in texts]
    subprocess.run(["systemd-analyze", "calendar", *calendars], check=True, capture_output=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "-1 * * * *",
        "1, * * * *",
        "a * * * *",
        "* * * mon *",
        "* * * * jan",
        "@reboot",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "١ * * * *",
        "* * * * *\n* * * * *",
        "0 0 * * * rm -rf /",
    ],
)
def test_wrong_expressions_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_cron(text)


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 31 2 1"])
def test_days_that_exist_only_sometimes_are_accepted(text: str) -> None:
    assert parse_cron(text).text == text


@pytest.mark.parametrize("text", ["0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * 1#2"])
def test_what_only_some_programs_understand_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="L, W and #"):
        parse_cron(text)


FIELDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> str:
    """A field of an expression."""
    kind = draw(st.sampled_from(["*", "number", "range", "step", "list"]))
    first = draw(st.integers(low, high))
    second = draw(st.integers(first, high))
    step = draw(st.integers(1, 9))
    forms = {"*": "*", "number": str(first), "range": f"{first}-{second}", "step": f"*/{step}"}
    return forms.get(kind, f"{first},{second}")


@given(st.tuples(*(fields(low, high) for low, high in FIELDS)), st.integers(0, 3000))
@settings(max_examples=examples(400))
def test_calendars_fit_the_same_days_as_the_expression(parts: tuple[str, ...], days: int) -> None:
    try:
        cron = parse_cron(" ".join(parts))
    except InvalidRequestError:
        return
    day = date(2024, 1, 1) + timedelta(days=days)
    before = datetime.combine(day, time()) - timedelta(seconds=1)
    fits = any(_fits(calendar, day) for calendar in cron.calendars)
    assert fits == (next(CronSim(cron.text, before)).date() == day)


def _fits(calendar: str, day: date) -> bool:
    """Whether systemd would start it on a day; the time is ignored."""
    *week, when, _time = calendar.split()
    _, months, days = when.split("-")
    names = week[0].split(",") if week else [day.strftime("%a")]
    in_week = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][day.weekday()] in names
    in_month = months == "*" or f"{day.month:02}" in months.split(",")
    return in_week and in_month and (days == "*" or f"{day.day:02}" in days.split(","))
