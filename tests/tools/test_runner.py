"""The runner: whatever comes in, one result goes out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.config.section import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice, DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Lifetime, PermissionStore
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult
from tests.approvers import ScriptedApprover
from tests.examples import examples
from tests.tools.workshop import Workshop, open_workshop


class Text(Arguments):
    text: str = ""


class Numbers(Arguments):
    one: float = 0.0
    many: tuple[dict[str, Any], ...] = ()


class Count(Tool[Numbers]):
    """Takes numbers, alone and deep inside."""

    name = "count"
    description = "For tests."
    arguments = Numbers

    def accesses(self, arguments: Numbers, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: Numbers, context: ToolContext) -> ToolResult:
        return ToolResult("counted")


class Odd(Tool[Text]):
    """Does what its argument says."""

    name = "odd"
    description = "For tests."
    arguments = Text

    def accesses(self, arguments: Text, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.NETWORK, "http://x/")] if arguments.text == "ask" else []

    async def run(self, arguments: Text, context: ToolContext) -> ToolResult:
        match arguments.text:
            case "sleep":
                await asyncio.sleep(60)
            case "crash":
                raise RuntimeError("boom")
            case "timeout":
                raise TimeoutError("its own")
            case "surrogate":
                return ToolResult("a\ud800b\ud83d\ude00", display="\udfff")
            case "long":
                return ToolResult("".join(f"{n:09}\n" for n in range(1000)))
            case _:
                pass
        return ToolResult("done")


def odd(base: Path, **options: Any) -> Workshop:
    return open_workshop(base, registry=ToolRegistry([Odd()]), mode=ApproveMode.ASK, **options)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("nope", {}, "Error: unknown tool: nope"),
        ("read_file", {}, "Error: bad arguments for read_file: path is missing"),
        (
            "read_file",
            {"path": None},
            "Error: bad arguments for read_file: path must be a valid string",
        ),
        (
            "read_file",
            {"file": "a", "path": "b"},
            "Error: bad arguments for read_file: file is unknown; it takes path, offset, limit",
        ),
        (
            "read_file",
            {"path": "a", "limit": -1},
            "Error: bad arguments for read_file: limit must be greater than or equal to 0",
        ),
        (
            "http_request",
            {"method": "X", "url": "x", "headers": 3, "body": 4.5, "z": 1, "y": 2},
            (
                "Error: bad arguments for http_request: method must be 'GET', 'POST', 'PUT', "
                "'PATCH', 'DELETE', 'HEAD' or 'OPTIONS'; headers must be a valid dictionary; "
                "z is unknown; it takes method, url, headers, body; 1 more"
            ),
        ),
        ("get_date", {"x": 1}, "Error: bad arguments for get_date: x is unknown; it takes nothing"),
    ],
)
async def test_bad_calls(
    workshop: Workshop, name: str, arguments: dict[str, Any], expected: str
) -> None:
    assert await workshop.call(name, **arguments) == expected


async def test_a_defect_of_a_tool_is_a_result(tmp_path: Path) -> None:
    workshop = odd(tmp_path)
    assert await workshop.call("odd", text="crash") == "Error: odd failed: boom"
    assert await workshop.call("odd", text="timeout") == "Error: odd failed: its own"


async def test_a_tool_has_so_much_time(tmp_path: Path) -> None:
    workshop = odd(tmp_path, timeout=0.05)
    assert await workshop.call("odd", text="sleep") == "Error: timed out after 0.05 s"


async def test_cancelling_goes_through(tmp_path: Path) -> None:
    task = asyncio.create_task(odd(tmp_path).call("odd", text="sleep"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_goes_through_while_the_user_thinks(tmp_path: Path) -> None:
    workshop = odd(tmp_path)
    requested = asyncio.Event()

    class Slow:
        async def ask(self, request: ApprovalRequest) -> Approval:
            requested.set()
            await asyncio.sleep(60)
            return Approval(Choice.ONCE)

    workshop.runner.approver = Slow()
    task = asyncio.create_task(workshop.call("odd", text="ask"))
    await requested.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_results_are_valid_and_capped(tmp_path: Path) -> None:
    workshop = odd(tmp_path, output_bytes=300)
    result = await workshop.result("odd", text="surrogate")
    assert (result.content, result.display) == ("a\ufffdb😀", "\ufffd")
    text = await workshop.call("odd", text="long")
    assert len(text.encode()) < 500
    assert text.startswith("000000000\n")
    assert text.endswith("000000999\n")
    path = text.split("all of it is in ")[1].split("]")[0]
    assert len(await asyncio.to_thread(Path(path).read_text)) == 10_000


async def test_the_answers(tmp_path: Path) -> None:
    answers = [
        Approval(Choice.DENY),
        Approval(Choice.DENY, feedback="use the cache"),
        Approval(Choice.ONCE, feedback="but quickly"),
        Approval(Choice.SESSION),
    ]
    workshop = odd(tmp_path, answers=answers)
    texts = [await workshop.call("odd", text="ask") for _ in range(5)]
    assert texts == [
        "Error: denied by the user",
        "Error: denied by the user: use the cache",
        "done\n[the user adds: but quickly]",
        "done",
        "done",
    ]
    assert workshop.request_count == 4
    request = workshop.approver.requests[0]
    assert request.call.name == "odd"
    assert request.cause == "ask network *"
    assert [r.describe() for r in request.session] == [
        f"allow odd x (in {workshop.root}, until this session ends)"
    ]
    assert request.rules_for(Choice.ALWAYS)[0].lifetime is Lifetime.ALWAYS
    assert request.rules_for(Choice.ONCE) == ()


async def test_always_is_remembered_by_the_next_session(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "config" / "permissions.toml")
    root = tmp_path / "project"
    root.mkdir()
    call = ToolCall("1", "write_file", {"path": "a", "content": "x"})

    def session(*answers: Choice, cwd: Path = root) -> tuple[ToolRunner, ScriptedApprover]:
        approver = ScriptedApprover(answers)
        policy = PermissionPolicy(cwd, store=store)
        context = ToolContext(cwd, tmp_path / "spill")
        return ToolRunner(default_registry(), policy, approver, context), approver

    runner, approver = session(Choice.ALWAYS)
    assert (await runner.run(call)).ok
    assert store.load() == list(approver.requests[0].always)
    runner, approver = session()
    assert (await runner.run(call)).ok
    assert approver.requests == []
    (tmp_path / "other").mkdir()
    runner, _ = session(cwd=tmp_path / "other")
    assert (await runner.run(call)).content == "Error: denied by the user"


async def test_a_rule_that_can_not_be_stored_is_told_and_holds_for_the_session(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    policy = PermissionPolicy(tmp_path, store=PermissionStore(tmp_path / "gone" / "p.toml"))
    (tmp_path / "gone").touch()
    context = ToolContext(tmp_path, tmp_path / "spill")
    approver = ScriptedApprover([Choice.ALWAYS])
    runner = ToolRunner(ToolRegistry([Odd()]), policy, approver, context)
    first = await runner.run(ToolCall("1", "odd", {"text": "ask"}))
    assert first.content.startswith("done\n[rule not stored: ")
    assert (await runner.run(ToolCall("2", "odd", {"text": "ask"}))).content == "done"


async def test_without_a_terminal_ask_means_deny(tmp_path: Path) -> None:
    context = ToolContext(tmp_path, tmp_path / "spill")
    for mode, expected in (
        (ApproveMode.ASK, "Error: denied: approval needed and no terminal to ask"),
        (ApproveMode.NONE, "Error: denied by rule: --approve none"),
    ):
        policy = PermissionPolicy(tmp_path, mode)
        runner = ToolRunner(ToolRegistry([Odd()]), policy, DenyingApprover(), context)
        assert (await runner.run(ToolCall("1", "odd", {"text": "ask"}))).content == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)  # fmt: skip
SAFE = [
    n for n in default_registry().names if n not in ("execute_command", "http_get", "http_request")
]
NAMED = [
    "path",
    "pattern",
    "content",
    "old_string",
    "new_string",
    "offset",
    "limit",
    "name",
    "glob",
]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(80),
)
@given(st.sampled_from([*SAFE, "x"]), st.dictionaries(st.sampled_from(NAMED), JSON, max_size=4))
async def test_any_call_gets_a_result(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    workshop = open_workshop(tmp_path, mode=ApproveMode.EDITS)
    result = await workshop.result(name, **arguments)
    assert result.content
    result.content.encode()
    result.display.encode()
    assert "failed: " not in result.content


async def test_keys_of_providers_are_in_no_result(tmp_path: Path) -> None:
    key = "sk-proj-1234567890abcd"
    shop = open_workshop(
        tmp_path, secrets={key: "OPENAI_API_KEY"}, environment={"OPENAI_API_KEY": key}
    )
    printed = await shop.call("execute_command", command="env; echo $OPENAI_API_KEY >&2")
    assert "OPENAI_API_KEY=[OPENAI_API_KEY]" in printed
    (shop.root / "notes.txt").write_text(f"the key is {key}.\n")
    changed = await shop.result(
        "edit_file", path="notes.txt", old_string="the key is", new_string="the old key was"
    )
    read = await shop.call("read_file", path="notes.txt")
    assert key not in f"{printed} {read} {changed.content} {changed.display}"
    assert "the old key was [OPENAI_API_KEY]." in read


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize("inside", ["one", "many", "word"])
async def test_a_number_that_json_has_not_is_refused(
    tmp_path: Path, text: str, inside: str
) -> None:
    workshop = open_workshop(tmp_path, registry=ToolRegistry([Count()]))
    number = float(text)
    arguments = {
        "one": {"one": number},
        "many": {"many": [{"a": [number]}]},
        "word": {"one": text},
    }[inside]
    result = await workshop.result("count", **arguments)
    assert (result.ok, result.content.startswith("Error: bad arguments for count: ")) == (
        False,
        True,
    )
    assert (await workshop.result("count", one=1e300)).content == "counted"
