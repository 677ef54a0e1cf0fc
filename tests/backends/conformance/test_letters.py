"""Letters that came in halves, as servers send them that count in UTF-16."""

import pytest

from tests.backends.conformance.reading import read
from tests.backends.conformance.said import Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.all import wired
from tests.backends.conformance.talk import question
from tests.backends.conformance.wired import AdapterSubject

HALVES = {"\ue001": "\\ud83d", "\ue002": "\\udc11"}
"""What stands for half a letter in what is said, and how it is escaped."""


@pytest.mark.parametrize("subject", wired(Scenario.UNICODE), ids=repr)
async def test_halves_of_letters_are_put_together(subject: AdapterSubject) -> None:
    """Those that are alone are replaced, so that what was said can be written down."""
    said = Said(
        "a\ue001" if Scenario.THINKING not in subject.lacks else "",
        ("x\ue001", "\ue002y\ue002", "\ue001"),
    )
    stream = subject.stream(said)
    for letter, escape in HALVES.items():
        stream = stream.replace(letter.encode(), escape.encode())
    outcome = await read(subject, question(), [stream])
    message = outcome.generation.message
    assert message.content == "x🐑y\ufffd\ufffd"
    assert message.reasoning == ("a\ufffd" if said.thought else "")
