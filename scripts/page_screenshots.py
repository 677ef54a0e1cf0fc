"""Writes the pictures of the shared session's page in docs/, with Chromium and the real program."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.browser import CHROMIUM, Tab, open_browser
from tests.cli.cliserver import cliserver
from tests.cli.program import Program

DOCS = Path(__file__).parents[1] / "docs"
WIDTH, HEIGHT, SHORT_HEIGHT = 960, 1000, 720
MAX_BYTES = 150_000

NOTES = "# Garden\n\n- water the tomatoes\n- buy seeds\n- repair the fence\n"
ANSWER = """\
The seeds are **ticked off** in `garden.md`. Two tasks are left:

| Task | When |
|---|---|
| water the tomatoes | every evening |
| repair the fence | before June |

```sh
git diff garden.md
```
"""
EDIT = {"path": "garden.md", "old_string": "- buy seeds", "new_string": "- [x] buy seeds"}
SCRIPT = f"""think: The seeds are bought. I change only that line.
text: I read the notes first.
call: read_file {{"path": "garden.md"}}
call: edit_file {json.dumps(EDIT)}
---
text: {json.dumps(ANSWER)}
"""


def main() -> None:
    """Serve a conversation with a scripted model, and take the pictures."""
    with tempfile.TemporaryDirectory() as directory:
        home, work = Path(directory, "home"), Path(directory, "garden")
        for path in (home, work):
            path.mkdir()
        (work / "garden.md").write_text(NOTES)
        with cliserver(Program(home, work), SCRIPT) as url:
            asyncio.run(take_pictures(url, Path(directory, "profile")))
    for name in ("page-light.png", "page-dark.png"):
        size = (DOCS / name).stat().st_size
        if size > MAX_BYTES:
            sys.exit(f"{name} has {size} bytes, more than {MAX_BYTES}")
        sys.stdout.write(f"wrote docs/{name} ({size} bytes)\n")


async def take_pictures(url: str, profile: Path) -> None:
    """Ask a question in the page, and take a picture before and after its approval."""
    async with open_browser(profile) as browser:
        tab = await browser.open(url, width=WIDTH, height=HEIGHT)
        await tab.until("!document.getElementById('room').hidden")
        await tab.type("#prompt", "I bought the seeds. Please tick them off.")
        await tab.press("Enter", 13)
        await tab.until("document.querySelector('.question .answers button:enabled') !== null")
        await _picture(tab, "page-light.png", dark=False)
        await tab.click(".question .answers button")
        await tab.until("document.querySelector('#log table') !== null")
        await tab.until("document.getElementById('stop').disabled")
        await tab.click("#session summary")
        await tab.until("document.querySelector('#sessions li') !== null")
        await tab.resize(WIDTH, SHORT_HEIGHT)
        await _picture(tab, "page-dark.png", dark=True)


async def _picture(tab: Tab, name: str, *, dark: bool) -> None:
    await tab.value("document.activeElement.blur(), scrollTo(0, 0)")
    await tab.screenshot(DOCS / name, dark=dark)


if __name__ == "__main__":
    if not CHROMIUM:
        sys.exit("Chromium is not installed.")
    main()
