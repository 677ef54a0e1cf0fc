"""The clock, the calendar, the environment."""

import re
import time
from pathlib import Path

from shepherd.config.section import ApproveMode
from shepherd.tools.permissions.approval import Choice
from tests.tools.workshop import Workshop, open_workshop


async def test_time_and_date(workshop: Workshop) -> None:
    before = time.strftime("%H:%M:%S")
    text = await workshop.call("get_time")
    assert re.fullmatch(r"\d\d:\d\d:\d\d \S+", text)
    assert before <= text[:8] or text < before  # midnight
    dates = [time.strftime("%Y-%m-%d %A"), await workshop.call("get_date")]
    dates.append(time.strftime("%Y-%m-%d %A"))
    assert dates[1] in (dates[0], dates[2])  # midnight


async def test_variables_and_those_that_look_like_secrets(tmp_path: Path) -> None:
    environment = {"COLOUR": "green", "MY_API_KEY": "s3cret"}
    workshop = open_workshop(
        tmp_path, mode=ApproveMode.ASK, environment=environment, answers=[Choice.DENY, Choice.ONCE]
    )
    name = "get_environment_variable"
    assert await workshop.call(name, name="COLOUR") == "green"
    assert await workshop.call(name, name="NO_SUCH_VARIABLE") == (
        "Error: environment variable NO_SUCH_VARIABLE is not set"
    )
    assert workshop.request_count == 0
    assert await workshop.call(name, name="MY_API_KEY") == "Error: denied by the user"
    assert await workshop.call(name, name="MY_API_KEY") == "s3cret"
