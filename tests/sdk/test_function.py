"""Tools from functions: arguments, texts, what they touch, what they return."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

import shepherd
from shepherd.messages import ToolCall
from shepherd.tools.function import FunctionTool
from shepherd.tools.permissions.policy import ApproveMode, PermissionPolicy
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from tests.approvers import ScriptedApprover

READ = shepherd.AccessKind.READ


def runner(tool: FunctionTool, cwd: Path, *answers: shepherd.Choice, **policy: Any) -> ToolRunner:
    context = shepherd.ToolContext(cwd, cwd)
    rules = PermissionPolicy(cwd, **policy)
    return ToolRunner(ToolRegistry([tool]), rules, ScriptedApprover(answers), context)


async def run(tool: FunctionTool, cwd: Path, **arguments: Any) -> str:
    """The result of an approved call."""
    tools = runner(tool, cwd, shepherd.Choice.ONCE)
    return (await tools.run(ToolCall("1", tool.name, arguments))).content


def test_arguments_come_from_hints_and_docstring() -> None:
    @shepherd.tool
    def book(
        table: int,
        name: str = "",
        *,
        when: Literal["noon", "evening"],
        guests: Annotated[list[str], Field(description="Who comes.")] = [],  # noqa: B006 - never changed
    ) -> None:
        """Book a table
        in the restaurant.

        Args:
            table: Its number.
            when (str): The time.

        """
        _ = table, name, when, guests

    spec = book.spec()
    assert (spec.name, spec.description) == ("book", "Book a table in the restaurant.")
    assert spec.parameters["required"] == ["table", "when"]
    properties = spec.parameters["properties"]
    assert properties["table"] == {"type": "integer", "description": "Its number."}
    assert properties["when"]["enum"] == ["noon", "evening"]
    assert properties["guests"]["description"] == "Who comes."


def test_it_stays_a_function() -> None:
    @shepherd.tool(name="twice", description="Double a number.")
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert (double.name, double.description) == ("twice", "Double a number.")


@pytest.mark.parametrize("value", ["text", {"a": [1, None]}, 3, ("x", "y")])
async def test_what_is_returned_is_text_or_json(value: Any, tmp_path: Path) -> None:
    @shepherd.tool
    async def give() -> Any:
        """Give it."""
        await asyncio.sleep(0)
        return value

    expected = {"text": "text", "3": "3"}.get(str(value))
    content = await run(give, tmp_path)
    assert content == (expected or {tuple: '["x","y"]', dict: '{"a":[1,null]}'}[type(value)])


async def test_none_is_told_as_done_and_other_things_as_an_error(tmp_path: Path) -> None:
    @shepherd.tool
    def nothing(what: str = "") -> Any:
        """Return nothing, or something that is not JSON."""
        return object() if what else None

    assert await run(nothing, tmp_path) == "done"
    assert "object, which is not JSON" in await run(nothing, tmp_path, what="x")


async def test_an_error_of_the_function_is_the_result_of_the_call(tmp_path: Path) -> None:
    @shepherd.tool
    def fail(how: str) -> str:
        """Fail."""
        raise shepherd.ToolError("no luck") if how == "told" else KeyError("defect")

    assert await run(fail, tmp_path, how="told") == "Error: no luck"
    assert (await run(fail, tmp_path, how="else")).startswith("Error: fail failed")


def a_lambda() -> Any:
    return lambda: 1


def no_docstring(a: int) -> None: ...


def no_hint(a) -> None:  # type: ignore[no-untyped-def] # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    """Text."""


def many(*names: str) -> None:
    """Text."""


def read(path: str) -> None:
    """Text."""


def _hidden() -> None:
    """Text."""


def not_json(a: asyncio.Lock) -> None:
    """Text."""


def unresolved(a: "Missing") -> None:  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
    """Text."""


REFUSED: list[Any] = [
    *(no_docstring, many, read, _hidden, not_json, a_lambda()),
    no_hint,  # pyright: ignore[reportUnknownArgumentType]
    unresolved,
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_can_not_be_a_tool_is_a_type_error(function: Any) -> None:
    with pytest.raises(TypeError, match=r"."):
        shepherd.tool(function)


@pytest.mark.parametrize("kind", list(shepherd.AccessKind))
def test_no_tool_is_called_like_a_kind_of_access(kind: shepherd.AccessKind) -> None:
    """A rule such as `allow environment *` would otherwise allow the tool."""
    with pytest.raises(TypeError, match="permission rules use this word"):
        FunctionTool(read, name=kind.value)


@shepherd.tool
def act() -> str:
    """Act."""
    return "acted"


@pytest.mark.parametrize("mode", list(ApproveMode))
async def test_a_call_asks_unless_a_rule_or_all_allows_it(
    mode: ApproveMode, tmp_path: Path
) -> None:
    tools = runner(act, tmp_path, mode=mode)
    result = await tools.run(ToolCall("1", "act", {}))
    assert (result.content == "acted") == (mode is ApproveMode.ALL)


@pytest.mark.parametrize("rule", ["allow tool act", "allow tool *", "allow act *", "allow act act"])
async def test_a_rule_allows_it(rule: str, tmp_path: Path) -> None:
    tools = runner(act, tmp_path, user=[parse_rule(rule)])
    assert (await tools.run(ToolCall("1", "act", {}))).content == "acted"


async def test_an_answer_for_the_session_adds_the_rule(tmp_path: Path) -> None:
    tools = runner(act, tmp_path, shepherd.Choice.SESSION)
    for _ in range(2):
        assert (await tools.run(ToolCall("1", "act", {}))).content == "acted"
    assert isinstance(tools.approver, ScriptedApprover)
    assert [str(rule) for rule in tools.approver.requests[0].session] == ["allow tool act"]


def touch(kind: Any, target: str) -> FunctionTool:
    def look() -> str:
        """Look."""
        return "seen"

    return FunctionTool(look, touches=lambda: [shepherd.Access(kind, target)])


@pytest.mark.parametrize("kind", [READ, "read"])
@pytest.mark.parametrize(
    ("target", "allowed"), [("a.txt", True), ("../a.txt", False), (".env", False), ("", False)]
)
async def test_declared_paths_are_judged_as_the_other_tools_paths(
    kind: Any, target: str, *, allowed: bool, tmp_path: Path
) -> None:
    tools = runner(touch(kind, target), tmp_path)
    assert (await tools.run(ToolCall("1", "look", {}))).ok is allowed


async def test_an_unknown_kind_of_access_fails_the_call(tmp_path: Path) -> None:
    tools = runner(touch("everything", "x"), tmp_path, mode=ApproveMode.ALL)
    assert not (await tools.run(ToolCall("1", "look", {}))).ok


async def test_a_tool_that_touches_nothing_runs_unasked(tmp_path: Path) -> None:
    tools = runner(FunctionTool(lambda: "4", name="four", description="4", touches=()), tmp_path)
    assert (await tools.run(ToolCall("1", "four", {}))).content == "4"


async def test_names_that_pydantic_has_too_are_arguments(tmp_path: Path) -> None:
    def show(json: str, copy: int, model_fields: str) -> str:
        """Show."""
        return f"{json} {copy} {model_fields}"

    shown = await run(FunctionTool(show), tmp_path, json="a", copy=1, model_fields="b")
    assert shown == "a 1 b"
