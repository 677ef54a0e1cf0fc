"""Chromium without a window, driven over a pipe by its DevTools protocol."""

import asyncio
import base64
import fcntl
import json
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class BrowserStartError(Exception):
    """The browser does not start on this machine."""


class Browser:
    """The connection to one browser."""

    def __init__(self, output: asyncio.StreamReader, descriptor: int) -> None:
        self._output = output
        self._descriptor = descriptor
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []

    async def read(self) -> None:
        """Read answers until the browser ends."""
        try:
            while True:
                message = json.loads((await self._output.readuntil(b"\0"))[:-1])
                if "id" in message:
                    self._answers.pop(message["id"]).set_result(message)
                elif message["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                    self.problems.append(json.dumps(message["params"])[:500])
        except asyncio.IncompleteReadError:
            for answer in self._answers.values():
                answer.set_exception(ConnectionError("the browser has ended"))

    async def call(self, method: str, session: str = "", **params: Any) -> Any:
        """The result of a method of the protocol."""
        self._number += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        try:
            os.write(self._descriptor, json.dumps(message).encode() + b"\0")
        except OSError:
            self._answers.pop(self._number)
            raise
        async with asyncio.timeout(PATIENCE):
            result = await answer
        assert "error" not in result, result
        return result["result"]

    async def open(self, url: str, *, width: int = 1000, height: int = 800) -> "Tab":
        """A new tab with its own storage."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        tab = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.call(f"{domain}.enable")
        await tab.resize(width, height)
        await tab.call("Page.navigate", url=url)
        await tab.until("document.readyState === 'complete'")
        return tab


@dataclass
class Tab:
    """One page."""

    browser: Browser
    session: str

    async def call(self, method: str, **params: Any) -> Any:
        """The result of a method for this page."""
        return await self.browser.call(method, self.session, **params)

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the page in pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The value of an expression once it is true; a page that is loading has none."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(AssertionError):
                    if value := await self.value(expression):
                        return value
                await asyncio.sleep(0.02)

    async def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        await self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, code: int, *, modifiers: int = 0) -> None:
        """Press and release a key; `modifiers`: 1 Alt, 2 Ctrl, 8 Shift."""
        event: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        event["modifiers"] = modifiers
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def click(self, selector: str) -> None:
        """Click an element once it is there and enabled."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{found} !== null && !{found}.disabled")
        await self.value(f"{found}.click()")

    async def screenshot(self, path: Path, *, dark: bool = False) -> None:
        """Write a PNG of what is visible."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)
        picture = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(picture["data"]))


@asynccontextmanager
async def open_browser(directory: Path) -> AsyncGenerator[Browser]:
    """A browser with its profile in `directory`, ended with the context."""
    to_browser, commands = os.pipe()
    results, from_browser = os.pipe()

    def use_pipes() -> None:
        """Make the pipes the files 3 and 4, as the browser expects them."""
        reading, writing = (fcntl.fcntl(f, fcntl.F_DUPFD, 10) for f in (to_browser, from_browser))
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *_OPTIONS,
        f"--user-data-dir={directory}",
        "about:blank",
        pass_fds=[3, 4],
        preexec_fn=use_pipes,
        env={"PATH": os.environ["PATH"], "HOME": str(directory)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(results, "rb")
    )
    browser = Browser(reader, commands)
    reading = asyncio.create_task(browser.read())
    try:
        await _wait_for_start(browser)
        yield browser
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        transport.close()
        os.close(commands)


async def _wait_for_start(browser: Browser) -> None:
    try:
        await browser.call("Browser.getVersion")
    except (OSError, TimeoutError) as error:
        raise BrowserStartError(f"{CHROMIUM} does not start: {error}") from error
