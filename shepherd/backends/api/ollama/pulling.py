"""A pull that goes on when its connection breaks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from shepherd.backends.api.ollama.manage import OllamaManager
from shepherd.backends.api.ollama.models import PullProgress
from shepherd.errors import UnreachableError

TRIES = 5
"""So often a connection may be lost before anything more has come."""

GOING_ON = "the connection broke off; going on"
"""The status of the step that is told then."""


async def pull_on(
    manager: OllamaManager, model: str, *, pause: float = 0.2
) -> AsyncGenerator[PullProgress, None]:
    """As `OllamaManager.pull`, which is begun again if it had begun and breaks off.

    `pause` in seconds is before the first time; it doubles while nothing more comes.
    """
    most: dict[str, int] = {}
    tries = 0
    while True:
        begun = bool(tries)
        try:
            async with aclosing(manager.pull(model)) as steps:
                async for step in steps:
                    begun = True
                    if step.completed > most.get(step.digest, 0):
                        most[step.digest] = step.completed
                        tries = 0
                    yield step
            return
        except UnreachableError:
            tries += 1
            if not begun or tries >= TRIES:
                raise
        yield PullProgress(GOING_ON)
        await asyncio.sleep(pause * 2 ** (tries - 1))
