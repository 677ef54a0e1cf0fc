"""A terminal on a shared conversation, beside another client."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from msgspec import structs

from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from tests.cli.cliserver import agent_server, cliserver
from tests.cli.program import Program
from tests.e2e.conftest import Start
from tests.e2e.terminal import CTRL_D, ESCAPE
from tests.patience import PATIENCE
from tests.pictures import png

SCRIPT = """\
call: write_file {"path": "new.txt", "content": "alpha\\n"}
---
text: It is done.
---
text: **Others** ask too.
---
text: Wait for it
delay: 60
"""


def test_a_terminal_shares_the_conversation(start: Start, home: Path, work: Path) -> None:
    with cliserver(Program(home, work), SCRIPT) as url:
        terminal = start(None, "--connect", url, columns=100, rows=40)
        terminal.wait_for("script at http")
        terminal.say("write it")
        terminal.wait_for("Allow write_file")
        assert "+alpha" in terminal.text()
        assert not (work / "new.txt").exists()
        terminal.choose("y")
        terminal.wait_for("It is done")
        assert (work / "new.txt").read_text() == "alpha\n"

        answer = httpx.post(f"{url}/request", json={"prompt": "me as well"}, timeout=60)
        assert answer.json()["content"] == "**Others** ask too."
        shown = terminal.wait_for("Others ask too")
        assert "another client: me as well" in shown

        terminal.say("!echo for-$((40 + 2))")
        terminal.wait_for("for-42")
        terminal.say("!!echo mine-$((40 + 3))")
        terminal.wait_for("mine-43")

        terminal.say("and now")
        terminal.wait_for("Wait for it")
        terminal.send(ESCAPE)
        terminal.wait_for("interrupted")
        while (session := httpx.get(f"{url}/session", timeout=PATIENCE).json())["running"]:
            pass  # it ends as soon as its work lets go
        assert session["messages"][-1]["content"] == "Wait for it"

        terminal.say("/context")
        terminal.wait_for("12 messages")
        terminal.say("/clear")
        terminal.wait_for("the conversation was cleared")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        assert httpx.get(f"{url}/session", timeout=PATIENCE).json()["messages"] == []


def test_who_joins_sees_what_was_said(start: Start, home: Path, work: Path) -> None:
    with cliserver(Program(home, work), "text: I am here.") as url:
        httpx.post(f"{url}/request", json={"prompt": "who is there?"}, timeout=60)
        terminal = start(None, "--connect", url, columns=100, rows=30)
        shown = terminal.wait_for("I am here")
        assert "who is there?" in shown


def test_watchers_see_the_question_of_another_and_how_it_ended(
    start: Start, home: Path, work: Path
) -> None:
    waits = "write_file: waits for the approval of another client"
    with cliserver(Program(home, work), SCRIPT) as url:
        watcher = start(None, "--connect", url, columns=100, rows=40)
        watcher.wait_for("script at http")
        asker = start(None, "--connect", url, columns=100, rows=40)
        asker.wait_for("script at http")
        asker.say("write it")
        watcher.wait_for(waits)
        joining = start(None, "--connect", url, columns=100, rows=40)
        joining.wait_for(waits)
        asker.choose("n")
        for terminal in (watcher, joining):
            terminal.wait_for("write_file: denied")
        asker.wait_for("It is done")
        assert "another client" not in asker.text()
        assert "write_file: denied" not in asker.text()


def test_a_mentioned_image_is_sent_from_here(start: Start, home: Path, work: Path) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (work / "photo.png").write_bytes(png(64, 48))
    (work / "fake.png").write_text("text")
    with cliserver(Program(home, elsewhere), "text: A cat.") as url:
        terminal = start(None, "--connect", url, columns=100, rows=40)
        terminal.wait_for("script at http")
        terminal.say("what is @photo.png")
        terminal.wait_for(r"attached photo.png \(64×48, 1 kB\)")
        terminal.wait_for("A cat")
        sent = httpx.get(f"{url}/session", timeout=PATIENCE).json()["messages"]
        assert sent[0]["content"] == "[image photo.png, 64×48]\nwhat is @photo.png"

        terminal.say("and @fake.png")
        terminal.wait_for("not a PNG, JPEG, GIF or WebP")
        terminal.wait_count("› and @fake.png", 2)
        assert len(httpx.get(f"{url}/session", timeout=PATIENCE).json()["messages"]) == 2


def test_an_image_too_large_for_the_server_is_told(start: Start, home: Path, work: Path) -> None:
    config = home / ".config" / "shepherd"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[server]\nmax_body_bytes = 100000\n")
    (work / "photo.png").write_bytes(png(64, 48) + bytes(90_000))
    with cliserver(Program(home, work), "text: Never.") as url:
        terminal = start(None, "--connect", url, columns=100, rows=40)
        terminal.wait_for("script at http")
        terminal.say("what is @photo.png")
        terminal.wait_for(r"server\.max_body_bytes")
        terminal.wait_count("› what is @photo.png", 2)


def test_a_terminal_approves_for_clients_of_the_agent(start: Start, home: Path, work: Path) -> None:
    program = Program(home, work)
    keys = KeyStore(program.config / "keys.json")
    asker = keys.add("laptop")
    boss = keys.add("boss", lambda key: structs.replace(key, scopes=frozenset({KeyScope.APPROVE})))
    with agent_server(program, SCRIPT, "--auth-mode", "json") as url, ThreadPoolExecutor(1) as pool:
        address = url.removesuffix("/v1")
        terminal = start(
            None, "--connect", address, columns=100, rows=40, env={"SHEPHERD_API_KEY": boss}
        )
        terminal.wait_for("approvals for http")
        body = {"messages": [{"role": "user", "content": "write it"}]}
        headers = {"Authorization": f"Bearer {asker}"}
        answer = pool.submit(
            httpx.post, f"{url}/chat/completions", json=body, headers=headers, timeout=PATIENCE
        )
        terminal.wait_for("Allow write_file for the key laptop")
        assert "+alpha" in terminal.text()
        assert not (work / "new.txt").exists()
        terminal.choose("y")
        assert "It is done." in answer.result(PATIENCE).text
        assert (work / "new.txt").read_text() == "alpha\n"
        terminal.say("hello")
        terminal.wait_for("takes no prompts here")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
