"""Commands through the runner, in the box that holds here."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.tools.permissions.policy import ApproveMode
from shepherd.tools.sandbox.find import Attempt, Finding
from shepherd.tools.sandbox.sandbox import Sandbox
from tests.tools.workshop import Workshop, open_workshop

AUTO = ApproveMode.AUTO


def no_box() -> Finding:
    return Finding(None, (Attempt("bubblewrap", ok=False, reason="gone", advice="install it"),))


@pytest.fixture
def shop(tmp_path: Path) -> Callable[..., Workshop]:
    """Opens a workshop whose commands run in a sandbox."""

    def begin(mode: ApproveMode = AUTO, **options: Any) -> Workshop:
        options.setdefault("sandbox", Sandbox())
        return open_workshop(tmp_path, mode=mode, **options)

    return begin


@pytest.fixture
def port() -> Iterator[int]:
    """Something that listens on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def fetch(port: int) -> str:
    """A command that connects, and says so."""
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')"
    return f'{sys.executable} -c "{code}"'


async def test_in_auto_a_command_runs_unasked_and_stays_inside(
    shop: Callable[..., Workshop],
) -> None:
    inside = shop()
    text = await inside.call("execute_command", command="echo made > here; cat here")
    assert text == "made"
    assert (inside.root / "here").read_text() == "made\n"
    await inside.call("execute_command", command=f"echo x > {inside.outside}/there")
    await inside.call("execute_command", command=f"python3 -c \"open('{inside.outside}/b', 'w')\"")
    assert list(inside.outside.iterdir()) == []
    asked = [request for request in inside.approver.requests if not request.sandbox]
    assert asked == []
