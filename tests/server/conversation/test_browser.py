"""The page of a shared session in a real browser."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from shepherd.config.section import SandboxMode
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.browser import CHROMIUM, Browser, BrowserStartError, Tab, open_browser
from tests.server.conversation.harness import serving
from tests.tools.sandbox.boxes import LAYERED, need

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")

HOSTILE = """<script>window.owned = 1</script><img src=x onerror="window.owned = 1">
[bad](javascript:window.owned=1) [data](data:text/html,x) [good](https://example.org/a?b=1)
<https://example.org/auto> ![image](https://example.org/i.png) **bold *both*** `<b>code</b>`

| a | b |
|---|---|
| <i>1</i> | 2 |

```html
<b onclick="x()">raw</b>
```

1. one
2. two
   - nested

> quoted
"""
EDIT = 'call: edit_file {"path": "notes.txt", "old_string": "milk", "new_string": "te\\u200ba"}'
SCRIPT = f"""think: hm
text: Let me look.
call: read_file {{"path": "notes.txt"}}
{EDIT}
---
text: {json.dumps(HOSTILE)}
---
text: two
delay: 600
---
text: three
"""


def allowed(key: ApiKey) -> ApiKey:
    return structs.replace(key, scopes=frozenset({KeyScope.CHAT, KeyScope.TOOLS, KeyScope.APPROVE}))


async def enter(tab: Tab, key: str) -> None:
    """Type the key into the form."""
    await tab.until("!document.getElementById('entry').hidden")
    await tab.type("#key", key)
    await tab.press("Enter", 13)
    await tab.until("!document.getElementById('room').hidden")


async def ask(tab: Tab, prompt: str) -> None:
    """Type a prompt and send it with Enter."""
    await tab.type("#prompt", prompt)
    await tab.press("Enter", 13)


async def fits(tab: Tab) -> None:
    """Check that a phone shows all of the page's width, and what one needs to answer."""
    await tab.resize(390, 844)
    await tab.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert await tab.value("document.documentElement.scrollWidth") == 390
    wide = (
        "[...document.querySelectorAll('#room *')].filter(e => e.checkVisibility() && "
        "!e.closest('pre, .table, .hidden') && e.getBoundingClientRect().right > 390.5)"
        ".map(e => e.outerHTML.slice(0, 200))"
    )
    assert await tab.value(wide) == []
    for selector in ("#prompt", "#send", "#stop"):
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        assert await tab.value(f"{box}.bottom <= 844 && {box}.height >= 24")
    await tab.resize(1000, 800)


async def log_has(tab: Tab, text: str) -> None:
    await tab.until(f"document.getElementById('log').innerText.includes({json.dumps(text)})")


@asynccontextmanager
async def opened(profile: Path) -> AsyncGenerator[Browser]:
    """A browser; the test is skipped if it does not start."""
    async with AsyncExitStack() as stack:
        try:
            browser = await stack.enter_async_context(open_browser(profile))
        except BrowserStartError as error:
            pytest.skip(str(error))
        yield browser


async def test_a_conversation_in_two_tabs(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("remember the milk\n")
    keys = KeyStore(tmp_path / "keys.json")
    key = keys.add("laptop", allowed)
    profile = tmp_path / "profile"
    async with serving(SCRIPT, work, keys=keys) as served, opened(profile) as browser:
        tab, other = await browser.open(served.url), await browser.open(served.url)
        await tab.until("!document.getElementById('entry').hidden")
        await tab.type("#key", "wrong")
        await tab.press("Enter", 13)
        await tab.until(
            "document.getElementById('entry-problem').textContent.includes('not valid')"
        )
        await enter(tab, key)
        await enter(other, key)
        assert await tab.value("location.href") == f"{served.url}/"

        # the question has the whole diff, in which a hidden character is named
        await ask(tab, "first <b>prompt</b>")
        await tab.until("document.querySelector('.question') !== null")
        shown = await tab.value("document.querySelector('.question .diff').textContent")
        assert "-remember the milk" in shown
        assert "+remember the te<U+200B>a" in shown
        labels = (
            "[...document.querySelectorAll('.question .answers button')].map(b => b.textContent)"
        )
        assert await tab.value(labels) == [
            "Allow once",
            "Allow for this session",
            "Always allow",
            "Deny",
        ]
        assert "milk" in (work / "notes.txt").read_text()
        # the other tab shows it too, without buttons, until it is answered
        await other.until("document.querySelector('.question.elsewhere .diff') !== null")
        assert await other.value("document.querySelector('.question').textContent") == (
            "Another client is asked: allow edit_file?" + shown
        )
        for view in (tab, other):
            await fits(view)
        await tab.click(".question .answers button")
        await other.until("document.querySelector('.question') === null")
        await log_has(other, "edit_file: allowed once")
        await log_has(tab, "quoted")
        assert "milk" not in (work / "notes.txt").read_text()

        # what the model writes is text: no script, no image, links to the web only
        for view in (tab, other):
            await log_has(view, "<script>window.owned = 1</script>")
            await log_has(view, "first <b>prompt</b>")
            assert await view.value("window.owned") is None
            made = "[...document.querySelectorAll('#log img, #log script, #log i, #log b')].length"
            assert await view.value(made) == 0
            links = "[...document.querySelectorAll('#log a')].map(a => [a.href, a.rel])"
            assert await view.value(links) == [
                ["https://example.org/a?b=1", "noopener noreferrer"],
                ["https://example.org/auto", "noopener noreferrer"],
                ["https://example.org/i.png", "noopener noreferrer"],
            ]
            parts = (
                "['table', 'pre code', 'ol li ul li', 'blockquote', 'strong', 'details.thinking']"
            )
            found = f"{parts}.every(s => document.querySelector('#log ' + s))"
            assert await view.value(found)
            prompts = "[...document.querySelectorAll('.message.user')].length"
            assert await view.value(prompts) == 1

        # a command of the user: all see it and its output, which is its text here; the output of
        # a private one is only in this tab
        await ask(tab, "!shared command")
        for view in (tab, other):
            await log_has(view, "!shared command\n!shared command")
        await ask(tab, "!!private command")
        await log_has(tab, "!!private command")
        assert "private" not in await other.value("document.getElementById('log').innerText")

        # a prompt waits in the other tab, and the running one is stopped there
        await ask(tab, "second")
        await tab.until("document.getElementById('live').innerText.includes('two')")
        await ask(other, "third")
        await tab.until("document.querySelector('#queue li') !== null")
        assert "third" in await tab.value("document.getElementById('queue').innerText")
        await other.click("#stop")
        await log_has(tab, "three")
        await log_has(tab, "Stopped.")

        # both show the same messages, also after the page is loaded again
        await tab.call("Page.reload")
        await log_has(tab, "three")
        texts = "[...document.querySelectorAll('.message')].map(m => m.textContent)"
        await log_has(other, "three")
        assert await tab.value(texts) == await other.value(texts)
        await fits(tab)
        assert "of 32,768 tokens" in await tab.value(
            "document.getElementById('context').textContent"
        )

        # a text that is made to be slow is drawn, and nothing of it is lost
        for piece in ("**a ", "`a ", "# ", " ", "|", "- ", "> ", "[", "```\\n", "~~", "-- "):
            text = f"('x' + {json.dumps(piece)}.repeat(30000) + '`x').replace(/\\\\n/g, '\\n')"
            assert await tab.value(f"renderMarkdown({text}).textContent.includes('x')")

        wide = "'a|'.repeat(900) + '\\n' + '-|'.repeat(900) + '\\n|b'.repeat(20000)"
        assert await tab.value(f"renderMarkdown({wide}).querySelectorAll('td').length") < 50_000

        # a lost connection comes back, and what happened meanwhile is there
        await other.call(
            "Network.emulateNetworkConditions",
            offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1,
        )  # fmt: skip
        await other.call(
            "Network.emulateNetworkConditions",
            offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1,
        )  # fmt: skip
        await tab.click("#clear")
        await log_has(other, "The conversation was cleared.")
        assert [p for p in browser.problems if "401" not in p and "net::" not in p] == []


async def test_check_boxes_keep_some_files_and_hunks(tmp_path: Path) -> None:
    box = LAYERED[0]
    need(box)
    work = tmp_path / "work"
    work.mkdir()
    lines = [f"line {number}\n" for number in range(1, 31)]
    (work / "long.txt").write_text("".join(lines))
    command = "sed -i 's/line 2$/first/; s/line 29/last/' long.txt; echo new > made.txt; touch keep"
    script = f"call: execute_command {json.dumps({'command': command})}\n---\ntext: done"
    sandbox = Sandbox(
        SandboxMode.REQUIRED, layers=(tmp_path / "layers",), find=lambda: Finding(box, ())
    )
    profile = tmp_path / "profile"
    async with serving(script, work, sandbox=sandbox) as served, opened(profile) as browser:
        tab = await browser.open(served.url)
        await tab.until("!document.getElementById('room').hidden")
        await ask(tab, "go")
        await tab.until("document.querySelector('.question .parts') !== null")
        boxes = "[...document.querySelectorAll('.question .parts input')]"
        state = (
            f"{boxes}.map(b => [b.closest('label').textContent.trim(), b.checked, b.indeterminate])"
        )
        assert await tab.value(state) == [
            ["made keep (0 bytes)", True, False],
            ["changed long.txt (227 bytes)", True, False],
            ["hunk 1 of 2", True, False],
            ["hunk 2 of 2", True, False],
            ["made made.txt (4 bytes)", True, False],
        ]
        beside = f"{boxes}.every(b => b.getBoundingClientRect().width < 30)"
        assert await tab.value(beside)  # its text stands beside it
        await tab.until("!document.querySelector('.answers .once').disabled")
        buttons = "[...document.querySelectorAll('.answers button')].map(b => b.disabled)"
        assert await tab.value(buttons) == [False, False, False, False]

        # without one hunk its file is kept in part, and only "Keep" and "Drop" are offered
        for number in (2, 4):
            await tab.value(f"{boxes}[{number}].click()")
        assert [row[1:] for row in await tab.value(state)] == [
            [True, False],
            [True, True],
            [False, False],
            [True, False],
            [False, False],
        ]
        assert await tab.value(buttons) == [False, True, True, False]
        await tab.click(".answers .once")
        await log_has(tab, "done")
        assert [p for p in browser.problems if "net::" not in p] == []
    assert sorted(path.name for path in work.iterdir()) == ["keep", "long.txt"]
    text = (work / "long.txt").read_text()
    assert "first" not in text
    assert "last" in text
