"""Runs a module of Shepherd's as a program that can be ended: a thread could not be stopped."""

import asyncio
import resource
import sys


async def run_bounded(
    module: str, data: bytes, *, seconds: float, python: str = sys.executable
) -> bytes | None:
    """What the module writes for the input `data`; None if it takes too much or fails.

    Raises OSError if it can't be started.
    """
    process = await asyncio.create_subprocess_exec(
        *(python, "-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",  # an empty entry of PYTHONPATH would be a directory of a model
    )
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate(data)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:  # too slow, or the request was cancelled
            process.kill()
            await process.wait()
    return answer if answer or not process.returncode else None


def limit_resources(seconds: int, size: int) -> None:
    """Let the system end this process behind so much processor time, or deny it more memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
