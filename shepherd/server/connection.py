"""Stops the work of a request whose client has hung up."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from shepherd.tasks import end_tasks

T = TypeVar("T")


class ClientDisconnectedError(Exception):
    """The client hung up; nobody is left to be told anything."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, cancelling it when the client hangs up (ClientDisconnectedError).

    The request's body must have been read. However this ends, `work` has ended too.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_hung_up(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return await task
        raise ClientDisconnectedError
    finally:
        await end_tasks(task, watch)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
