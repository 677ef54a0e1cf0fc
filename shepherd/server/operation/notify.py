"""Tells systemd about the server's state, by the protocol of sd_notify."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager

from shepherd.tasks import end_tasks

logger = logging.getLogger(__name__)


class Notifier:
    """Sends states to the socket that systemd has named; without one it does nothing."""

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        """With `watchdog_seconds`, systemd ends a server that is silent for so long."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def from_env(cls, env: MutableMapping[str, str]) -> "Notifier":
        """The notifier of this process; its variables leave `env`, as they are not for children."""
        address = env.pop("NOTIFY_SOCKET", "")
        microseconds = env.pop("WATCHDOG_USEC", "")
        is_ours = env.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        seconds = int(microseconds) / 1e6 if microseconds.isdigit() and is_ours else 0.0
        return cls(address, seconds)

    def send(self, *lines: str) -> None:
        """Send `NAME=VALUE` lines; a failure is logged, as systemd may end the server for it."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.connect(self._address)
                sock.send("\n".join(lines).encode())
        except OSError as error:
            logger.warning("systemd can't be told %s: %s", lines[0], error)

    def send_state(self, state: str) -> None:
        """Send a state of `Lifecycle`; while it is `loading`, systemd waits for READY=1."""
        if state == "reloading":
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self.send("RELOADING=1", f"MONOTONIC_USEC={now}")
        elif state != "loading":
            self.send("STOPPING=1" if state == "stopping" else "READY=1")

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator[None]:
        """Send signs of life, if systemd waits for them."""
        beats = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            await end_tasks(beats)

    async def _beat(self) -> None:
        while self._address and self._watchdog_seconds > 0:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / 2)
