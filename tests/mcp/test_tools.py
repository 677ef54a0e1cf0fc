"""Tools of a real server, made with the SDK."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from shepherd.mcp.settings.definition import ServerState
from shepherd.tools.base import AccessKind
from tests.mcp.harness import ROOT, SDK_SERVER, Office, open_office, server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Office]:
    definition = server("all", **SDK_SERVER, env={"PYTHONPATH": str(ROOT)})
    async with open_office(tmp_path_factory.mktemp("office"), [definition]) as opened:
        yield opened


async def test_calls_give_text_and_structured_results(office: Office) -> None:
    assert office.entry("all").current is ServerState.READY
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


def _spilled(text: str) -> str:
    return Path(text.split("all of it is in ")[1].split("]")[0]).read_text()
