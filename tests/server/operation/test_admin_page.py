"""The page of those who run the server, in a real browser."""

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from shepherd.backends.base import BackendStatus, CacheTier, ModelInfo
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyChange, KeyStore
from shepherd.server.operation.log import logging_to_stderr
from shepherd.server.settings import ServerSettings
from tests.browser import CHROMIUM, BrowserStartError, Tab, open_browser
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")

HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\u202e'
MODEL = f"model {HOSTILE}"
QUEUE: list[dict[str, Any]] = [
    {
        "key": HOSTILE,
        "model": MODEL,
        "state": "waits",
        "position": 2,
        "expected_seconds": 90.0,
        "prompt_tokens": 1200,
        "cached_tokens": 1000,
        "generated": 0,
        "seconds": 3.5,
    },
]
SHOWN = "document.querySelectorAll('#board td, #board li').length"
"""How much of the server is on the page."""

LOOK = "document.dispatchEvent(new Event('visibilitychange'))"
"""Has the page look at the server at once."""


class Hostile(ScriptedBackend):
    """A model whose name is markup."""

    @property
    def info(self) -> ModelInfo:
        return structs.replace(super().info, id=MODEL)

    @property
    def status(self) -> BackendStatus:
        return BackendStatus((CacheTier("memory", 3, 2048, 4, 50, 6),), waiting_requests=7)


class HostileKeys(KeyStore):
    """A store that lists a key whose name and beginning are markup."""

    def keys(self) -> list[ApiKey]:
        keys = super().keys()
        return [*keys, structs.replace(keys[0], name=HOSTILE, prefix=HOSTILE, note=HOSTILE)]

    def _change(self, change: KeyChange) -> None:
        KeyStore(self.path)._change(change)


class Queued(RunningServer[Hostile]):
    """A server with a queue."""

    def add_queue(self) -> None:
        async def queue(_request: Request) -> JSONResponse:
            return JSONResponse({"requests": QUEUE, "engine_seconds": {HOSTILE: 2.25}})

        self.app.api.router.routes.insert(0, Route("/queue", queue))


def only_admin(key: ApiKey) -> ApiKey:
    return structs.replace(key, scopes=frozenset({KeyScope.ADMIN}))


async def enter(tab: Tab, key: str) -> None:
    """Type a key into the form."""
    await tab.until("!document.getElementById('entry').hidden")
    await tab.type("#key", key)
    await tab.press("Enter", 13)


async def text_of(tab: Tab, name: str) -> str:
    return await tab.value(f"document.getElementById({json.dumps(name)}).innerText")


async def has(tab: Tab, name: str, text: str) -> None:
    """Wait until an element has a text; the page looks at the server at once."""
    await tab.value(LOOK)
    found = f"document.getElementById({json.dumps(name)}).innerText.includes({json.dumps(text)})"
    await tab.until(found)


async def is_open(tab: Tab, dialog: str) -> bool:
    return await tab.value(f"document.getElementById({json.dumps(dialog)}).open")


async def new_secret(tab: Tab) -> str:
    """The secret that the page shows, after which it is closed with Escape."""
    secret = await tab.until("document.getElementById('secret-text').value")
    await tab.press("Escape", 27)
    await tab.until("!document.getElementById('secret').open")
    await tab.until("document.getElementById('secret-text').value === ''")
    return secret


async def fits(tab: Tab) -> bool:
    """Whether nothing of the page is wider than the window."""
    return await tab.value("document.documentElement.scrollWidth <= window.innerWidth")


async def test_the_page_shows_the_server_and_its_keys(tmp_path: Path) -> None:
    keys = HostileKeys(tmp_path / "keys.json")
    admin, user = keys.add("boss", only_admin), keys.add("user")
    settings = ServerSettings(port=0, usage_file=tmp_path / "usage.db")
    server = Queued(Hostile(parse_script("text: hi there")), settings, keys)
    server.add_queue()
    with logging_to_stderr() as lines, server:
        server.app.context.lifecycle.log = lines
        logging.getLogger("shepherd.test").warning("%s", HOSTILE)
        try:
            async with open_browser(tmp_path / "profile") as browser:
                tab = await browser.open(f"{server.url}/admin")
                await _come_in(tab, user, admin)
                await _look(tab)
                await _handle_keys(tab, server, keys)
                await _small_and_dark(tab)
                keys.remove("boss")
                await tab.value(LOOK)
                await tab.until("!document.getElementById('entry').hidden")
                assert await tab.value("document.getElementById('board').hidden")
                assert await tab.value(SHOWN) == 0
                assert [p for p in browser.problems if "status of 40" not in p] == []
        except BrowserStartError as error:
            pytest.skip(str(error))


async def _come_in(tab: Tab, user: str, admin: str) -> None:
    """Nothing is shown without a key, with a wrong one, and with one for another scope."""
    for key, problem in (("wrong", "not valid"), (user, "admin")):
        await enter(tab, key)
        await has(tab, "entry-problem", problem)
        assert await tab.value("document.getElementById('board').hidden")
        assert await tab.value(SHOWN) == 0
    await enter(tab, admin)
    await tab.until("!document.getElementById('board').hidden")
    assert "key=" not in await tab.value("location.href")


async def _look(tab: Tab) -> None:
    """What others have named is text, in all places, with its invisible characters."""
    for name in ("models", "requests", "keys", "caches", "lines"):
        assert HOSTILE[:-1] in await text_of(tab, name), name
        assert "<U+202E>" in await text_of(tab, name), name
    made = "[...document.querySelectorAll('#board img, #board script')].length"
    assert await tab.value(made) == 0
    assert await tab.value("window.owned") is None
    assert "1,200" in await text_of(tab, "requests")
    assert "90 s" in await text_of(tab, "requests")
    assert f"{HOSTILE[:-1]}<U+202E> 2.3 s" in await text_of(tab, "requests-note")
    assert "2 KiB" in await text_of(tab, "caches")
    assert "7" in await text_of(tab, "models")
    assert "403" in await text_of(tab, "errors") or "None" in await text_of(tab, "errors")
    assert " GET /admin/status 401 " in await text_of(tab, "lines")


async def _handle_keys(tab: Tab, server: Queued, keys: KeyStore) -> None:
    """A key is made with the keyboard, used, changed, rotated and removed."""
    await tab.value("document.getElementById('new-key').focus()")
    await tab.press("Enter", 13)
    assert await is_open(tab, "edit")
    await tab.type("#name", "boss")
    await tab.press("Enter", 13)
    await has(tab, "edit-problem", "already")
    await tab.value("document.getElementById('name').value = ''")
    await tab.type("#name", "ci")
    await tab.press("Enter", 13)
    first = await new_secret(tab)
    found = keys.find(first)
    assert found is not None
    assert found.name == "ci"
    await has(tab, "keys", "ci")
    headers = {"Authorization": f"Bearer {first}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        answer = await http.post(server.url + CHAT, json={"messages": HI})
    used = answer.json()["usage"]["total_tokens"]
    await tab.value("loadKeys()")
    row = "document.getElementById('change-ci').closest('tr').innerText"
    cells = (await tab.value(row)).split("\t")
    assert cells[7:11] == ["1", str(used), "0 %", "–"]

    await tab.click("#change-ci")
    assert await tab.value("document.getElementById('name').disabled")
    await tab.type("#limit-tokens_per_day", "1000")
    await tab.click("#scope-chat")
    await tab.click("#edit-save")
    await tab.until("!document.getElementById('edit').open")
    changed = keys.get("ci")
    assert changed.limits.tokens_per_day == 1000
    assert changed.scopes == {KeyScope.EMBED, KeyScope.TOOLS}

    await tab.click("#rotate-ci")
    await tab.click("#confirm-yes")
    second = await new_secret(tab)
    assert (keys.find(first), keys.find(second)) == (None, keys.get("ci"))

    await tab.click("#remove-ci")
    await tab.press("Escape", 27)
    await tab.until("!document.getElementById('confirm').open")
    assert keys.get("ci")
    await tab.click("#remove-ci")
    await tab.click("#confirm-yes")
    await tab.until("document.getElementById('remove-ci') === null")
    assert keys.find(second) is None
    whole = await tab.value("document.documentElement.outerHTML")
    assert not [secret for secret in (first, second) if secret in whole]

    # a new secret for the key of the page: it goes on with that
    await tab.click("#rotate-boss")
    await tab.click("#confirm-yes")
    await new_secret(tab)
    await tab.value("look()")
    assert await tab.value("document.getElementById('entry').hidden")


async def _small_and_dark(tab: Tab) -> None:
    """It fits a telephone, and follows the colours of the system."""
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await tab.value(ground)
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    await tab.call("Emulation.setEmulatedMedia", features=scheme)
    assert await tab.value(ground) != light
    await tab.resize(390, 800)
    assert await fits(tab)
    await tab.click("#new-key")
    assert await fits(tab)
    box = "document.getElementById('edit').getBoundingClientRect()"
    assert await tab.value(f"{box}.left >= 0 && {box}.right <= 390")
    await tab.click("#edit-cancel")
