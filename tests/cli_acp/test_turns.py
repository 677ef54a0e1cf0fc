"""Turns in an editor."""

import asyncio
import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.connection import StreamDirection
from acp.helpers import embedded_blob_resource, embedded_text_resource
from acp.schema import EnvVariable, McpServerStdio, SseMcpServer

from tests.cli.program import Program
from tests.cli_acp.editor import Connected, Editor, connected, until
from tests.pictures import png
from tests.tools.sandbox.boxes import LAYERED, need

LOOK_AND_EDIT = """think: hm
text: Let me look.
call: read_file {"path": "todo.txt"}
call: edit_file {"path": "todo.txt", "old_string": "milk", "new_string": "tea"}
call: execute_command {"command": "echo out; echo err >&2"}
---
text: Done.
"""


def methods(connection: Connected, direction: StreamDirection) -> list[str]:
    """The methods of all messages in one direction, "" for answers."""
    return [e.message.get("method", "") for e in connection.messages if e.direction is direction]


async def test_a_turn_shows_text_calls_results_and_changes(program: Program) -> None:
    editor = Editor(answers=["once", "once"])
    path = str(program.work / "todo.txt")
    async with connected(program, editor, *program.scripted(LOOK_AND_EDIT)) as connection:
        session = await connection.new(program.work)
        assert await connection.prompt(session, "hello") == "end_turn"
    assert editor.text("agent_thought_chunk") == "hm"
    assert editor.text() == "Let me look.Done."
    starts: list[Any] = editor.of("tool_call")
    assert [(s.kind, s.title) for s in starts] == [
        ("read", "Read `todo.txt`"),
        ("edit", "Edit `todo.txt`"),
        ("execute", "Run `echo out; echo err >&2`"),
    ]
    assert [location.path for location in starts[1].locations] == [path]
    assert starts[0].raw_input == {"path": "todo.txt"}
    assert set(map(tuple, editor.calls().values())) == {("in_progress", "completed")}
    read, _, edited, run = (u for u in editor.of("tool_call_update") if u.content)
    assert read.content[0].content.text == "```\nbuy milk\n```"
    diff = edited.content[0]
    assert (diff.type, diff.path, diff.old_text, diff.new_text) == (
        "diff",
        path,
        "buy milk\n",
        "buy tea\n",
    )
    assert "out\n[stderr]\nerr" in run.content[0].content.text
    asked = editor.requests[0][0].content
    assert asked is not None
    assert asked[0] == diff
    assert [u.used > 0 for u in editor.of("usage_update")] == [True, True]


async def test_the_commands_come_after_the_session_is_known(program: Program) -> None:
    editor = Editor()
    async with connected(program, editor, *program.scripted("text: a")) as connection:
        session = await connection.new(program.work)
        await until(editor, lambda: editor.of("available_commands_update"))
        assert methods(connection, StreamDirection.INCOMING) == ["", "", "session/update"]
        names = [c.name for c in editor.of("available_commands_update")[0].available_commands]
        assert {"clear", "context"} <= set(names)
        assert await connection.prompt(session, "/clear") == "end_turn"
        assert editor.text() == "The conversation starts afresh."


async def test_only_a_choice_that_was_offered_allows_a_call(program: Program) -> None:
    calls = [f'call: write_file {{"path": "{name}", "content": "x"}}' for name in "abcdef"]
    editor = Editor(answers=["once", "deny", "", "nonsense", None, "session"])
    script = "\n".join([*calls, 'call: write_file {"path": "g", "content": "x"}', "---", "text: ."])
    async with connected(program, editor, *program.scripted(script)) as connection:
        session = await connection.new(program.work)
        assert await connection.prompt(session, "write") == "end_turn"
    written = {path.name for path in program.work.iterdir()} - {"todo.txt"}
    assert written == {"a", "f", "g"}
    options = editor.requests[0][1]
    assert [(o.option_id, o.kind) for o in options] == [
        ("once", "allow_once"),
        ("session", "allow_always"),
        ("always", "allow_always"),
        ("deny", "reject_once"),
    ]
    assert "allow write_file" in options[1].name
    assert editor.calls()["Write `b`"] == ["failed"]


async def test_a_cancelled_turn_has_results_and_the_next_one_works(program: Program) -> None:
    editor = Editor()
    script = 'text: a\ncall: write_file {"path": "x", "content": ""}\n---\ntext: b'
    async with connected(program, editor, *program.scripted(script)) as connection:
        session = await connection.new(program.work)
        agent, cancelling = connection.agent, list[asyncio.Task[None]]()

        def cancel() -> None:
            cancelling.append(asyncio.create_task(agent.cancel(session_id=session)))

        editor.answers = [cancel]
        assert await connection.prompt(session, "one") == "cancelled"
        assert editor.calls() == {"Write `x`": ["failed"]}
        assert await connection.prompt(session, "two") == "end_turn"
        assert editor.text() == "ab"
        await cancelling[0]


async def test_a_second_prompt_is_refused_while_one_is_answered(program: Program) -> None:
    editor = Editor()
    async with connected(program, editor, *program.scripted("text: a\ndelay: 60")) as connection:
        session = await connection.new(program.work)
        first = asyncio.create_task(connection.prompt(session, "one"))
        await until(editor, lambda: editor.of("agent_message_chunk"))
        with pytest.raises(acp.RequestError, match="is answering another prompt"):
            await connection.prompt(session, "two")
        await connection.agent.cancel(session_id=session)
        assert await first == "cancelled"


async def test_unsaved_changes_are_not_overwritten(program: Program) -> None:
    path = str(program.work / "todo.txt")
    editor = Editor(answers=["once", "once"], buffers={path: "buy milk\nand bread\n"})
    script = """call: read_file {"path": "todo.txt"}
call: edit_file {"path": "todo.txt", "old_string": "milk", "new_string": "tea"}
---
call: edit_file {"path": "todo.txt", "old_string": "milk", "new_string": "tea"}
---
text: Done."""
    async with connected(program, editor, *program.scripted(script)) as connection:
        session = await connection.new(program.work)
        await connection.prompt(session, "edit")
        results = [u for u in editor.of("tool_call_update") if u.status in ("completed", "failed")]
        assert "this is the saved text" in results[0].raw_output
        assert "has unsaved changes in the editor" in results[1].raw_output
    assert (program.work / "todo.txt").read_text() == "buy milk\n"


async def test_all_blocks_reach_the_model(program: Program) -> None:
    editor = Editor()
    (program.work / "two words.txt").write_text("linked text\n")
    link = acp.resource_link_block("two words.txt", (program.work / "two words.txt").as_uri())
    web = acp.resource_link_block("page", "https://example.org/page")
    text = acp.resource_block(
        embedded_text_resource((program.work / "open.py").as_uri(), "print(1)")
    )
    picture = b64encode(png(3, 2)).decode()
    image = acp.image_block(picture, "image/png")
    blob = acp.resource_block(
        embedded_blob_resource("file:///a.png", picture, mime_type="image/png")
    )
    async with connected(program, editor, *program.scripted("text: a")) as connection:
        session = await connection.new(program.work)
        assert connection.capabilities.agent_capabilities is not None
        assert connection.capabilities.agent_capabilities.prompt_capabilities is not None
        await connection.prompt(session, "Look at ", link, " and ", web, text, image, blob)
        for wrong, why in (
            (acp.audio_block(picture, "audio/wav"), "can't hear audio"),
            (acp.image_block("AAAA", "image/png"), "is not a PNG"),
            (
                acp.resource_block(
                    embedded_blob_resource("file:///a.pdf", picture, mime_type="application/pdf")
                ),
                "is not text or an image",
            ),
            ("  ", "is empty"),
        ):
            with pytest.raises(acp.RequestError, match=why):
                await connection.prompt(session, wrong)
    line = program.sessions[0].read_text().splitlines()[1]
    message = json.loads(line)["message"]
    content = message["content"]
    assert '<file path="two words.txt">\nlinked text\n</file>' in content
    assert '<file path="open.py">\nprint(1)\n</file>' in content
    assert "[page](https://example.org/page)" in content
    assert [i["data"] for i in message["images"]] == [picture, picture]


async def test_a_linked_file_is_read_under_the_rules(program: Program, tmp_path: Path) -> None:
    editor = Editor(answers=["once", "deny"])
    (tmp_path / "outside.txt").write_text("from outside")
    link = acp.resource_link_block("outside.txt", (tmp_path / "outside.txt").as_uri())
    async with connected(program, editor, *program.scripted("text: a")) as connection:
        session = await connection.new(program.work)
        assert await connection.prompt(session, "Look at ", link) == "end_turn"
        with pytest.raises(acp.RequestError, match="denied by the user"):
            await connection.prompt(session, "Look at ", link)
    assert [u.status for u in editor.of("tool_call_update")] == ["completed", "failed"]
    assert "from outside" in program.sessions[0].read_text()


async def test_a_saved_session_is_sent_again(program: Program) -> None:
    first, second, listed = Editor(answers=["once", "once"]), Editor(), Path("/")
    async with connected(program, first, *program.scripted(LOOK_AND_EDIT)) as connection:
        session = await connection.new(program.work)
        await connection.prompt(session, "hello")
    async with connected(program, second, *program.scripted("text: again")) as connection:
        page = await connection.agent.list_sessions(cwd=str(program.work))
        assert [(s.session_id, s.title) for s in page.sessions] == [(session, "hello")]
        assert (await connection.agent.list_sessions(cwd=str(listed))).sessions == []
        with pytest.raises(acp.RequestError, match="No session 2"):
            await connection.agent.load_session(cwd=str(program.work), session_id=session[:4])
        loaded = await connection.agent.load_session(
            cwd=str(program.work), session_id=session, mcp_servers=[]
        )
        assert loaded is not None
        # the editor knows the session already, so that nothing comes after the answer
        shown = methods(connection, StreamDirection.INCOMING).count("session/update")
        await connection.agent.list_sessions(cwd=str(listed))
        assert methods(connection, StreamDirection.INCOMING).count("session/update") == shown
        assert second.of("available_commands_update")
        assert second.text("user_message_chunk") == "hello"
        assert second.text() == first.text()
        assert second.text("agent_thought_chunk") == "hm"
        assert [c.title for c in second.of("tool_call")] == [c.title for c in first.of("tool_call")]
        assert set(map(tuple, second.calls().values())) == {("completed",)}
        assert await connection.prompt(session, "more") == "end_turn"
        await connection.agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="no open session"):
            await connection.prompt(session, "more")
        await connection.agent.resume_session(cwd=str(program.work), session_id=session)
        assert await connection.prompt(session, "/context") == "end_turn"


async def test_modes_are_approval_modes_and_commands_work(program: Program) -> None:
    editor = Editor(answers=["deny"])
    script = 'call: write_file {"path": "x", "content": "1"}\n---\ntext: a'
    async with connected(program, editor, *program.scripted(f"{script}\n---\n{script}")) as c:
        new = await c.agent.new_session(cwd=str(program.work), mcp_servers=[])
        assert new.modes is not None
        assert new.modes.current_mode_id == "ask"
        assert {"ask", "edits", "auto"} <= {mode.id for mode in new.modes.available_modes}
        await c.prompt(new.session_id, "write")
        assert not (program.work / "x").exists()
        await c.agent.set_session_mode(session_id=new.session_id, mode_id="edits")
        await until(editor, lambda: editor.of("current_mode_update"))
        await c.prompt(new.session_id, "write")
        assert (program.work / "x").exists()
        await c.prompt(new.session_id, "/diff")
        assert "+1" in editor.text()
        await c.prompt(new.session_id, "/undo")
        assert not (program.work / "x").exists()
        with pytest.raises(acp.RequestError, match="takes a number"):
            await c.prompt(new.session_id, "/rewind dance")
        with pytest.raises(acp.RequestError, match="There is no mode dance"):
            await c.agent.set_session_mode(session_id=new.session_id, mode_id="dance")


def chosen(choices: list[Any] | None) -> dict[str, str]:
    return {choice.id: choice.current_value for choice in choices or []}


async def test_the_editor_chooses_mode_model_and_reasoning(program: Program) -> None:
    editor = Editor(answers=["deny"])
    (program.home / "other").write_text("text: from the other model")
    program.config.mkdir(parents=True)
    (program.config / "providers.toml").write_text('[other]\ntype = "openai"\nmodel = "m"\n')
    script = 'call: write_file {"path": "x", "content": "1"}\n---\ntext: ok\n---\ntext: ok'
    async with connected(program, editor, *program.scripted(script)) as c:
        new = await c.agent.new_session(cwd=str(program.work), mcp_servers=[])
        assert chosen(new.config_options) == {
            "mode": "ask",
            "model": "local",
            "thought_level": "none",
        }

        async def choose(name: str, value: str) -> dict[str, str]:
            done = await c.agent.set_config_option(
                config_id=name, session_id=new.session_id, value=value
            )
            assert done is not None
            return chosen(done.config_options)

        assert (await choose("thought_level", "high"))["thought_level"] == "high"
        assert (await choose("thought_level", "default"))["thought_level"] == "default"
        assert (await choose("model", "local"))["model"] == "local"
        with pytest.raises(acp.RequestError, match="choose one of local, other"):
            await choose("model", "missing")
        with pytest.raises(acp.RequestError, match="There is no color"):
            await choose("color", "red")
        assert (await choose("mode", "edits"))["mode"] == "edits"
        await until(editor, lambda: editor.of("current_mode_update"))
        await c.prompt(new.session_id, "write")
        assert (program.work / "x").exists()
        await c.prompt(new.session_id, "/approve plan")
        told: list[Any] = editor.of("config_option_update")
        assert chosen(told[-1].config_options)["mode"] == "plan"


async def test_two_sessions_with_the_built_in_model(program: Program, tmp_path: Path) -> None:
    editor = Editor()
    (tmp_path / "other").mkdir()
    options = ("--temperature", "0", "--set", "llamacpp.threads=1", "--context-size", "2048")
    async with connected(program, editor, *options) as connection:
        capabilities = connection.capabilities.agent_capabilities
        assert capabilities is not None
        assert capabilities.prompt_capabilities is not None
        assert not capabilities.prompt_capabilities.image
        sessions = [await connection.new(program.work), await connection.new(tmp_path / "other")]
        reasons = await asyncio.gather(
            *(connection.prompt(session, "Which files are here?") for session in sessions)
        )
        assert reasons == ["end_turn", "end_turn"]
    ended = [u for u in editor.of("tool_call_update") if u.status == "completed"]
    assert len(ended) == len(editor.of("tool_call")) >= 2
    assert len(program.sessions) == 2


async def test_errors_have_a_sentence_and_no_traceback(program: Program) -> None:
    editor = Editor()
    async with connected(program, editor, *program.scripted("error: gone\n---\ntext: b")) as c:
        with pytest.raises(acp.RequestError, match="is not the absolute path"):
            await c.new(Path("missing"))
        session = await c.new(program.work)
        with pytest.raises(acp.RequestError, match="gone"):
            await c.prompt(session, "a")
        assert await c.prompt(session, "b") == "end_turn"
        with pytest.raises(acp.RequestError, match="Method not found"):
            await c.agent.fork_session(session_id=session, cwd=str(program.work))


async def test_a_model_that_does_not_load_is_told_at_the_session(program: Program) -> None:
    async with connected(program, Editor(), "--model", "/missing.gguf") as connection:
        with pytest.raises(acp.RequestError, match=r"missing\.gguf"):
            await connection.new(program.work)


COUNTING_SERVER = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    match request["method"]:
        case "initialize":
            result = {"protocolVersion": request["params"]["protocolVersion"],
                      "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            result = {"tools": [{"name": "count", "inputSchema": schema}]}
        case _:
            result = {"content": [{"type": "text", "text": os.environ["NUMBER"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


async def test_servers_of_the_editor_bring_their_tools(program: Program) -> None:
    editor = Editor(answers=["once"])
    server = McpServerStdio(
        name="My Counter",
        command=sys.executable,
        args=["-S", "-E", "-c", COUNTING_SERVER],
        env=[EnvVariable(name="NUMBER", value="forty-two")],
    )
    old = SseMcpServer(type="sse", name="old", url="http://example.org/sse", headers=[])
    script = "call: my_counter__count {}\n---\ntext: done"
    async with connected(program, editor, *program.scripted(script)) as connection:
        new = await connection.agent.new_session(cwd=str(program.work), mcp_servers=[server, old])
        assert await connection.prompt(new.session_id, "count") == "end_turn"
    assert "failed" not in [u.status for u in editor.of("tool_call_update")]
    [result] = [u.raw_output for u in editor.of("tool_call_update") if u.status == "completed"]
    assert "forty-two" in result
    assert "The MCP server old of the editor is not used" in editor.text("agent_thought_chunk")
    assert "my_counter" in editor.requests[0][1][1].name


async def test_a_cancelled_review_goes_on_with_the_next_prompt(program: Program) -> None:
    need(LAYERED[0])
    editor = Editor()
    script = (
        'call: write_file {"path": "a", "content": "1"}\n---\ntext: one\n---\n'
        'call: execute_command {"command": "cat a; echo 2 > b"}\n---\ntext: two\n---\ntext: three'
    )
    command = [*program.scripted(script), "--approve", "review"]
    async with connected(program, editor, *command) as connection:
        session = await connection.new(program.work)
        agent, cancelling = connection.agent, list[asyncio.Task[None]]()

        def cancel() -> None:
            cancelling.append(asyncio.create_task(agent.cancel(session_id=session)))

        editor.answers = [cancel, "once"]
        assert await connection.prompt(session, "go") == "cancelled"
        await cancelling[0]
        assert not (program.work / "a").exists()
        assert await connection.prompt(session, "and b") == "end_turn"
        assert [option.option_id for option in editor.requests[-1][1]] == [
            "once",
            "session",
            "always",
            "deny",
        ]
    assert (program.work / "a").read_text() == "1"
    assert (program.work / "b").read_text() == "2\n"
