"""Ending asyncio tasks."""

import asyncio
from typing import Any


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what still runs and wait until all have ended; their results are not looked at."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
