"""Which calls the grammar of free calls allows."""

import pytest
from msgspec.structs import replace

from shepherd.backends.inprocess.constraint import Constrainer, Constraint
from shepherd.backends.output.known import unwritten
from shepherd.backends.output.notation import Fields, Language, Notation
from shepherd.backends.output.style import GENERIC
from shepherd.errors import InvalidRequestError
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.deferred import FIND_TOOLS, USE_TOOL_SPEC, FindTools, SearchResults
from tests.tools.deferred.many import remote_tools

NOTATION = Notation('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
STYLE = replace(GENERIC, notations=(NOTATION,))
GOOD = ToolSpec("good", "", {"type": "object", "properties": {"number": {"type": "integer"}}})
ODD = {"type": "object", "properties": {"value": {"type": "strange"}}}


def constraint(session: Session) -> Constraint | None:
    return Constrainer(STYLE).constraint(session, "")


def test_one_odd_schema_leaves_the_others_enforced() -> None:
    both = constraint(Session(tools=[GOOD, ToolSpec("odd", "", ODD)]))
    alone = constraint(Session(tools=[GOOD]))
    assert both is not None
    assert alone is not None
    assert both.names == ("good", "odd")
    assert '"number"' in alone.grammar
    assert '"number"' in both.grammar
    with pytest.raises(InvalidRequestError):
        constraint(Session(tools=[GOOD, ToolSpec("odd", "", ODD, enforced=True)]))


def test_a_schema_that_must_be_enforced_is_refused_after_it_was_only_offered() -> None:
    constrainer = Constrainer(STYLE)
    assert constrainer.constraint(Session(tools=[ToolSpec("odd", "", ODD)]), "") is not None
    with pytest.raises(InvalidRequestError):
        constrainer.constraint(Session(tools=[ToolSpec("odd", "", ODD, enforced=True)]), "")


def test_a_tool_that_a_search_found_can_be_called_by_its_name() -> None:
    tools = [FindTools().spec(), USE_TOOL_SPEC]
    session = Session(tools=tools, deferred=SearchResults([*remote_tools(), FindTools()]))
    before = constraint(session)
    call = ToolCall("1", FIND_TOOLS, {"query": "issue"})
    session.add(Message.tool(call, "1 of 200 tools:\ngithub__create_issue(owner: string)"))
    after = constraint(session)
    assert before is not None
    assert after is not None
    assert after.names == (*before.names, "github__create_issue")
    assert '"owner"' in after.grammar


PATTERN = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^a$"}}}


@pytest.mark.parametrize(
    "tool",
    [
        ToolSpec("note", "", PATTERN, enforced=True),
        ToolSpec("note", "", enforced=True, grammar='%lark {\nstart: "{}"\n}'),
    ],
)
def test_a_text_that_is_not_json_is_not_held_and_so_refused(tool: ToolSpec) -> None:
    python = Notation(
        "<call>", "(", ")</call>", fields=Fields("", "=", "", quote="'", language=Language.PYTHON)
    )
    for notation in unwritten("List of tools: "), (python,):
        style = replace(GENERIC, notations=notation)
        with pytest.raises(InvalidRequestError):
            Constrainer(style).constraint(Session(tools=[tool]), "")
    assert constraint(Session(tools=[tool])) is not None
