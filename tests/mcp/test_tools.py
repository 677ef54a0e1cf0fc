"""A real server, made with the SDK: tools, questions, prompts and resources."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from shepherd.errors import InvalidRequestError
from shepherd.events import Event, Topic
from shepherd.mcp.prompts import completions, with_servers
from shepherd.mcp.servers import ServerState
from shepherd.messages import Message, ToolCall
from shepherd.tools.access import AccessKind
from shepherd.tools.permissions.approval import Approval, Choice
from tests.approvers import ScriptedApprover
from tests.flat_events import flat
from tests.mcp.harness import ROOT, SDK_SERVER, Office, open_office, server, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Office]:
    definition = server("all", **SDK_SERVER, env={"PYTHONPATH": str(ROOT)})
    async with open_office(tmp_path_factory.mktemp("office"), [definition]) as opened:
        yield opened


async def test_calls_give_text_and_structured_results(office: Office) -> None:
    assert office.entry("all").state is ServerState.READY
    assert json.loads((await office.call("all__add", a=2, b=3)).content) == {"total": 5}
    wrong = await office.call("all__add", a="two", b=3)
    assert not wrong.ok
    assert "a: 'two' is not of type 'integer'" in wrong.content
    failed = await office.call("all__fail")
    assert not failed.ok
    assert "this went wrong" in failed.content


async def test_a_tool_is_an_extension_with_an_access_of_its_own(office: Office) -> None:
    await office.call("all__add", a=1, b=1)
    tool = office.runner.registry.get("all__add")
    assert tool is not None
    assert tool.is_extension
    [access] = tool.accesses(None, office.runner.context)
    assert (access.kind, access.target) == (AccessKind.MCP, "all/add")


async def test_images_reach_the_result_and_long_text_a_file(office: Office) -> None:
    seen = await office.call("all__picture")
    assert [image.size for image in seen.images] == [(4, 3)]
    long = await office.call("all__long", characters=50_000)
    assert len(long.content) < 5000
    assert _spilled(long.content) == "x" * 50_000


async def test_progress_is_shown_and_an_interrupted_call_is_cancelled(office: Office) -> None:
    progress: list[str] = []

    def receive(event: Event) -> bool:
        _, text, name, _ = flat(event)
        if name == Topic.PROGRESS:
            progress.append(text)
        return True

    call = asyncio.create_task(office.call("all__slow", receive, seconds=600))
    await until(lambda: progress)
    assert progress == ["1/2 half way"]
    call.cancel()
    await asyncio.wait([call])
    await until((office.root / "cancelled").exists)


async def test_a_form_is_asked_for_and_refused_without_a_user(office: Office) -> None:
    asked = office.runner.approver
    assert isinstance(asked, ScriptedApprover)
    asked.script(Approval(Choice.ONCE, values=("Ada", "")), Approval(Choice.DENY))
    answer = await office.call("all__ask")
    assert answer.content == "accept: name='Ada' age=7"
    assert asked.requests[-1].preview == "Who are you?"
    assert asked.requests[-1].fields == ("Name (string)", "Age (integer, empty = 7)")
    assert asked.requests[-1].choices == ((), ())
    assert (await office.call("all__ask")).content == "decline: None"


async def test_a_changed_list_is_offered_with_the_next_turn(office: Office) -> None:
    assert (await office.call("all__grow")).content == "grown"
    connection = office.entry("all").connection
    assert connection is not None
    await until(lambda: "extra" in [tool.name for tool in connection.catalogue.tools])
    assert (await office.call("all__extra")).content == "new"


async def test_a_registry_of_a_server_follows_a_changed_list(tmp_path: Path) -> None:
    definition = server("all", **SDK_SERVER, env={"PYTHONPATH": str(ROOT)})
    async with open_office(tmp_path, [definition]) as own:
        registry = own.runner.registry
        await own.hub.provide(registry)
        assert "all__grow" in registry.names
        before = registry.version
        await own.runner.run(ToolCall("call_1", "all__grow", {}))
        await until(lambda: "all__extra" in registry.names)
        assert registry.version > before


async def test_prompts_and_resources_take_the_place_of_their_names(office: Office) -> None:
    async def message(text: str) -> str:
        return (
            await with_servers(Message.user(text), office.hub, 4096, office.paths.spill)
        ).content

    assert await message("/all:review the loop style=long") == "Review the loop in a long way."
    assert await message('/all:review "the loop"') == "Review the loop in a short way."
    text = await message("Look at @all:note://by-name/ada, please.")
    assert text.startswith("Look at @all:note://by-name/ada, please.\n\n<file path=")
    assert "\na note for ada\n</file>" in text
    assert await message("mail me@all:x or /other:y") == "mail me@all:x or /other:y"
    for wrong in ("/all:review", "/all:nothing", "@all:note://missing"):
        with pytest.raises(InvalidRequestError):
            await message(wrong)
    prompts, resources = completions(office.hub)
    assert prompts == [("all:review", "topic [style] — Review a topic.")]
    assert "all:note://hello" in resources


def _spilled(text: str) -> str:
    return Path(text.split("all of it is in ")[1].split("]")[0]).read_text()
