"""Without tools on offer, no prompt tells of tools and nothing is taken for a call."""

import pytest

from shepherd.backends.inprocess.constraint import Constrainer
from shepherd.backends.inprocess.conversation import Conversation
from shepherd.backends.inprocess.prompt import PromptBuilder
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.output.filter import OutputFilter
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.llamacpp.support import LIST

OWN_RULES = "To list files answer with <tool_call>list PATH</tool_call>, and with nothing else."
OWN_CALL = '<tool_call>list src</tool_call>\n{"name": "list_directory", "arguments": {}}'
CONVERSATION = Conversation(
    OWN_RULES, (Message.user("go"), Message.assistant(OWN_CALL), Message.user("on"))
)
KNOWS_TOOLS = (
    "{% if tools is defined %}# Tools{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
)
KNOWS_NONE = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"


@pytest.mark.parametrize("template", [None, "", KNOWS_TOOLS, KNOWS_NONE])
def test_the_prompt_holds_the_users_words_and_nothing_of_tools(
    pup_model: NativeModel, template: str | None
) -> None:
    rendered = PromptBuilder(pup_model, template).rendered(CONVERSATION)
    assert OWN_RULES in rendered
    assert OWN_CALL in rendered
    assert "# Tools" not in rendered.replace(OWN_RULES, "")
    assert rendered.count("tool_call") == 4


@pytest.mark.parametrize("template", [None, "", KNOWS_TOOLS, KNOWS_NONE])
def test_with_tools_the_prompt_tells_them(pup_model: NativeModel, template: str | None) -> None:
    conversation = Conversation("", (Message.user("go"),), (LIST,))
    assert "list_directory" in PromptBuilder(pup_model, template).rendered(conversation)


def test_what_looks_like_a_call_is_shown_as_it_is(pup_builder: PromptBuilder) -> None:
    output = OutputFilter(pup_builder.output_style())
    events = output.feed(OWN_CALL) + output.finish()
    assert "".join(event.text for event in events) == OWN_CALL
    assert output.result.tool_calls == ()


def test_no_grammar_holds_the_answer(pup_builder: PromptBuilder) -> None:
    style = pup_builder.output_style()
    constrainer = Constrainer(style)
    session = Session(OWN_RULES, list(CONVERSATION.messages))
    assert constrainer.constraint(session, "") is None
    session.tools = [LIST]
    assert constrainer.constraint(session, "") is not None
