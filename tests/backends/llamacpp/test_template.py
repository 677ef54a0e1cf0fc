import json
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from shepherd.backends.inprocess.conversation import Conversation
from shepherd.backends.inprocess.prompt import PromptBuilder
from shepherd.backends.inprocess.special import SEAL, SpecialTexts
from shepherd.backends.inprocess.template import CHATML, ChatTemplate, TemplateFailedError
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.errors import InvalidRequestError
from shepherd.messages import Message, Role, ToolCall
from tests.backends.llamacpp.support import LIST

CALL = ToolCall("c1", "list_directory", {"path": "ü", "n": [1, None]})
HI = Conversation("sys", (Message.user("hi"),))
CALLED = Conversation("", (Message.user("a"), Message.assistant("", tool_calls=(CALL,))), (LIST,))


def render(model: NativeModel, source: str, conversation: Conversation = HI) -> str:
    specials = SpecialTexts(model.vocab, source)
    return ChatTemplate(source, specials, {"bos_token": "<s>"}).render(conversation)


def test_templates_get_the_values_of_a_client(llama_model: NativeModel) -> None:
    values = {"style": "terse</s>", "deep": {"a": [True, None, 2]}, "bos_token": "x", "tools": [1]}
    asked = Conversation("sys", (Message.user("hi"),), template_values=values)
    source = "{{ bos_token }}{{ style }}{{ deep.a[2] }}{{ tools is defined }}{{ other }}"
    rendered = render(llama_model, source, asked)
    assert rendered.replace(SEAL, "") == "<s>terse</s>2False"
    assert "</s>" not in rendered
    builder = PromptBuilder(llama_model, "{{ raise_exception(style) }}")
    with pytest.raises(InvalidRequestError, match="terse"):
        builder.rendered(asked)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s>sys"),
        ("{% if tools is defined %}tools{% else %}none{% endif %}", "none"),
        ("{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{% for m in messages %}{% if loop.last %}{% continue %}{% endif %}x{% endfor %}", "x"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ messages | map(attribute='content') | tojson }}", '["sys", "hi"]'),
        ("{% set _ = messages.append(messages[0]) %}{{ messages[2].content }}", "sys"),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ strftime_now('%Y-%m-%d') }} {{ date_string }}", "2026-01-02 02 Jan 2026"),
        ("{{ datetime + functions }}", "Jan 02 2026"),
        ("{% generation %}a{% endgeneration %}", "a"),
        ("{{ enable_thinking }} {{ thinking }} {{ add_generation_prompt }}", "True True True"),
    ],
)
def test_templates_find_what_they_expect(
    llama_model: NativeModel, source: str, expected: str
) -> None:
    began = datetime(2026, 1, 2, tzinfo=UTC)
    conversation = Conversation("sys", HI.messages, (), True, began)
    assert render(llama_model, source, conversation) == expected


def test_a_template_may_show_tools_as_a_text(llama_model: NativeModel) -> None:
    source = "{{ functions }}<functools>{% for m in messages %}{{ m.content }}{% endfor %}"
    rendered = render(llama_model, source, replace(CALLED, messages=HI.messages))
    (tool,) = json.loads(rendered.partition("<")[0])
    assert tool["function"]["name"] == LIST.name


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[99].content }}",
        "{{ 1 + 'a' }}",
        "{% if %}",
        "{% for i in range(100000000) %}{% endfor %}",
    ],
)
def test_a_template_that_fails_says_so(llama_model: NativeModel, source: str) -> None:
    with pytest.raises(TemplateFailedError):
        render(llama_model, source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ messages | tojson(indent=10**9) }}",
        "{{ 'a' * 10**10 }}",
        "a" * 10_000_000,
        "{% for i in range(99999) %}{{ messages | tojson }}{% endfor %}",
    ],
)
def test_a_template_without_an_end_is_left_for_chatml(
    llama_model: NativeModel, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shepherd.backends.inprocess.render_guard.MAX_SECONDS", 0.2)
    builder = PromptBuilder(llama_model, source)
    prompt = builder.build(HI)
    assert "ChatML is used instead" in prompt.warning
    assert builder.rendered(HI) == PromptBuilder(llama_model, CHATML).rendered(HI)


def test_a_template_that_takes_too_much_again_and_again_is_not_tried_any_more(
    llama_model: NativeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shepherd.backends.inprocess.render_guard.MAX_SECONDS", 0.1)
    source = (
        "{% if messages[-1].content == 'go' %}{% for a in range(99999) %}"
        "{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}{{ messages[-1].content }}"
    )
    template = ChatTemplate(source, SpecialTexts(llama_model.vocab, source), {})
    go = Conversation("", (Message.user("go"),))
    for _ in range(2):
        with pytest.raises(TemplateFailedError):
            template.render(go)
        assert template.render(HI) == "sys\n\nhi"
    with pytest.raises(TemplateFailedError):
        template.render(go)
    with pytest.raises(TemplateFailedError, match=r"takes more than 0\.1 seconds"):
        template.render(HI)


def test_arguments_come_as_an_object_at_both_places(llama_model: NativeModel) -> None:
    source = (
        "{# knows tools #}{% for c in messages[1].tool_calls %}"
        "{{ c.arguments.path }}{{ c.function.arguments | tojson }}{% endfor %}"
    )
    assert render(llama_model, source, CALLED) == 'ü{"path": "ü", "n": [1, null]}'


def test_arguments_come_as_text_where_a_template_adds_them_up(llama_model: NativeModel) -> None:
    source = (
        "{# knows tools #}{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{{ m.content }}{% endfor %}"
    )
    expected = 'list_directory{"path": "ü", "n": [1, null]}'
    assert expected in render(llama_model, source, CALLED)


REFUSING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
)
IGNORING = "{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}"


@pytest.mark.parametrize("source", [REFUSING, IGNORING])
def test_a_template_without_a_system_role_gets_it_in_the_user_message(
    llama_model: NativeModel, source: str
) -> None:
    assert render(llama_model, source) == "[user:sys\n\nhi]"


IN_ORDER = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning') }}{% endif %}"
    "[{{ m.role }}: {{ m.content }}]{% endfor %}"
)
DEAF = "{% for m in messages if m.role != 'system' %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
ANY_ORDER = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
LATE = (
    Message.user("a"),
    Message(Role.SYSTEM, "first"),
    Message.assistant("b"),
    Message(Role.SYSTEM, "second"),
    Message.user("c"),
)


@pytest.mark.parametrize("source", [IN_ORDER, DEAF])
def test_a_late_system_message_is_the_user_s_where_a_template_would_lose_it(
    llama_model: NativeModel, source: str
) -> None:
    expected = "[user: a\n\nfirst][assistant: b][user: second\n\nc]"
    assert render(llama_model, source, Conversation("", LATE)) == expected


def test_a_late_system_message_stays_where_a_template_takes_it(llama_model: NativeModel) -> None:
    expected = "[user: a][system: first][assistant: b][system: second][user: c]"
    assert render(llama_model, ANY_ORDER, Conversation("", LATE)) == expected


def test_the_fallback_renders_everything(llama_model: NativeModel) -> None:
    messages = (*CALLED.messages, Message.tool(CALL, "done"), Message.assistant("ok", "hm"))
    text = render(llama_model, CHATML, Conversation("sys", messages, (LIST,)))
    assert text.startswith("<|im_start|>system\nsys\n\n# Tools")
    assert '"name": "list_directory"' in text
    assert '<tool_call>\n{"name": "list_directory", "arguments": {"path": "ü"' in text
    assert "<|im_start|>tool\ndone<|im_end|>\n" in text
    assert "<think>\nhm\n</think>\n\nok<|im_end|>\n<|im_start|>assistant\n" in text


def test_the_fallback_without_a_system_message_still_tells_the_tools(
    llama_model: NativeModel,
) -> None:
    text = render(llama_model, CHATML, CALLED)
    assert text.count("# Tools") == 1
    assert "<|im_start|>user\na<|im_end|>" in text


def test_a_failing_template_falls_back_and_warns(llama_model: NativeModel) -> None:
    builder = PromptBuilder(llama_model, template="{{ raise_exception('not today') }}")
    prompt = builder.build(HI)
    assert "not today" in prompt.warning
    assert prompt.text_tail.endswith("<|im_start|>assistant\n")


def test_a_model_without_a_template_gets_chatml(llama_model: NativeModel) -> None:
    assert PromptBuilder(llama_model, template="").build(HI).warning == ""


def test_the_tool_template_is_taken_when_tools_are_offered(llama_model: NativeModel) -> None:
    builder = PromptBuilder(llama_model, template="plain", tool_template="tools")
    assert builder.rendered(HI) == "plain"
    assert builder.rendered(CALLED) == "tools"


def test_a_template_that_knows_no_tools_sees_them_as_text(llama_model: NativeModel) -> None:
    source = (
        "{% for m in messages %}{% if loop.index0 % 2 != (m.role == 'assistant') | int %}"
        "{{ raise_exception('take turns') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    )
    calls = (CALL, ToolCall("c2", "list_directory", {}))
    messages = (
        Message.user("a"),
        Message.assistant("ok", tool_calls=calls),
        Message.tool(calls[0], "one"),
        Message.tool(calls[1], "two"),
    )
    text = render(llama_model, source, Conversation("", messages, (LIST,)))
    assert text.startswith("[user:# Tools")
    assert '{"name": "list_directory", "description": "List a directory."' in text
    assert (
        '[assistant:ok\n<tool_call>\n{"name": "list_directory", '
        '"arguments": {"path": "ü", "n": [1, null]}}\n</tool_call>\n<tool_call>'
    ) in text
    assert text.count("<tool_response>\n") == 2
    assert text.count("[user:") == 2


def test_a_template_without_tools_is_left_alone_when_there_are_none(
    llama_model: NativeModel,
) -> None:
    assert render(llama_model, "{% for m in messages %}{{ m.content }},{% endfor %}") == "sys,hi,"


def test_ids_are_short_where_a_template_insists(llama_model: NativeModel) -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{% if c.id | length != 9 %}{{ raise_exception('ids of length 9!') }}{% endif %}"
        "{{ c.id }}{{ c.arguments | length }} {% endfor %}{{ m.tool_call_id }}"
        "{% if m.tool_calls %}{{ m.tool_calls[0].arguments.key }}{% endif %}{% endfor %}"
        "{{ tools | length }}"
    )
    messages = (*CALLED.messages, Message.tool(CALL, "done"))
    call, result = render(llama_model, source, Conversation("", messages, (LIST,))).split(" ")
    assert call[:9] == result[:9]
    assert (call[9:], result[9:]) == ("2", "1")


def test_several_calls_follow_one_another_where_only_one_is_taken(
    llama_model: NativeModel,
) -> None:
    source = (
        "{# tools #}{% for m in messages %}"
        "{% if m.tool_calls and m.tool_calls | length > 1 %}"
        "{{ raise_exception('one at a time') }}{% endif %}"
        "{% for c in m.tool_calls or [] %}({{ c.arguments | tojson }}){% endfor %}"
        "[{{ m.content }}]{% endfor %}"
    )
    calls = tuple(ToolCall(f"c{p}", "list_directory", {"path": p}) for p in "ab")
    messages = (
        Message.user("q"),
        Message.assistant("ok", tool_calls=calls),
        Message.tool(calls[0], "one"),
        Message.tool(calls[1], "two"),
    )
    a, b = '({"path": "a"})', '({"path": "b"})'
    answered = Conversation("", messages)
    assert render(llama_model, source, answered) == f"[q]{a}[ok][one]{b}[][two]"
    unanswered = Conversation("", messages[:3])
    assert render(llama_model, source, unanswered) == f"[q]{a}[ok][one]{b}[]"


def test_calls_that_a_template_would_lose_are_text(llama_model: NativeModel) -> None:
    source = "{# tools #}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    text = render(llama_model, source, CALLED)
    assert '[assistant:<tool_call>\n{"name": "list_directory"' in text
