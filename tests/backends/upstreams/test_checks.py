"""The checks of one upstream."""

import asyncio
import threading

from shepherd.backends.api.http.retry import Timing
from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.backends.upstream import CheckPolicy, Upstream
from shepherd.errors import BusyError, UnreachableError
from shepherd.tasks import end_tasks
from tests.patience import PATIENCE


async def _open() -> Backend:
    return ScriptedBackend(parse_script("text: hi"))


async def _watch() -> None:
    upstream = Upstream("http://a", _open, CheckPolicy(), Timing(), lambda _url: None)
    upstream.fail(UnreachableError("gone"), prompt=True)
    upstream.be_busy(BusyError("slow down"), 30)
    task = asyncio.create_task(upstream.watch())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await end_tasks(task)


def test_checks_don_t_hold_up_the_loop_when_a_server_is_busy_after_it_was_down() -> None:
    thread = threading.Thread(target=lambda: asyncio.run(_watch()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
