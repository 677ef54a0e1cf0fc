from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.inprocess.conversation import Conversation
from shepherd.backends.inprocess.prompt import PromptBuilder
from shepherd.backends.inprocess.special import ATTR_CONTROL, Vocabulary
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.messages import Message, Role, ToolCall, ToolSpec
from tests.backends.llamacpp.support import LIST
from tests.examples import examples

SPECIALS = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<think>"]
PARTS = [
    *SPECIALS,
    "<|im_",
    "<|",
    "<",
    "start|>",
    "end|>",
    "\n",
    " ",
    "system\n",
    "user\n",
    "é",
    "x",
]
HOSTILE = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="<>|\x00"), max_size=60)

Place = Callable[[str], Conversation]


def as_user(text: str) -> Conversation:
    return Conversation("be brief", (Message.user(text),))


def as_system(text: str) -> Conversation:
    return Conversation(text or "x", (Message.user("hi"),))


def as_answer(text: str) -> Conversation:
    return Conversation("", (Message.user("a"), Message.assistant(text), Message.user("b")))


def as_reasoning(text: str) -> Conversation:
    answer = Message.assistant("so", reasoning=text or "x")
    return Conversation("", (Message.user("a"), answer, Message.user("b")))


def as_argument(text: str) -> Conversation:
    call = ToolCall("c1", "list_directory", {"path": text, text or "k": [text]})
    return Conversation("", (Message.user("a"), Message.assistant("", tool_calls=(call,))), (LIST,))


def as_result(text: str) -> Conversation:
    call = ToolCall("c1", "list_directory", {"path": "x"})
    messages = (Message.user("a"), Message.assistant("", tool_calls=(call,)))
    return Conversation("", (*messages, Message.tool(call, text)), (LIST,))


def as_tool(text: str) -> Conversation:
    name = text or "x"
    properties = {name: {"type": "string", "description": text, "enum": [text]}}
    tool = ToolSpec(name, text, {"type": "object", "properties": properties})
    return Conversation("", (Message.user("a"),), (tool,))


def as_call(text: str) -> Conversation:
    call = ToolCall(text or "x", text or "x", {})
    messages = (Message.user("a"), Message.assistant("", tool_calls=(call,)))
    return Conversation("", (*messages, Message.tool(call, "b")), (LIST,))


def as_later_system(text: str) -> Conversation:
    late = Message(Role.SYSTEM, text or "x")
    return Conversation("", (Message.user("a"), Message.assistant("b"), late, Message.user("c")))


def as_value(text: str) -> Conversation:
    values = {
        "date_string": text,
        "bos_token": text,
        "tools": [text],
        "documents": [{"text": text}],
    }
    return Conversation("", (Message.user("a"),), template_values=values)


PLACES = [as_user, as_system, as_answer, as_reasoning, as_argument, as_result]
OTHER_PLACES = [as_tool, as_call, as_later_system, as_value]


BODIES = [
    "{{ m.content | trim }}",
    "{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}",
    "{{ m | tojson }}",
    "{% for part in m.content.split('<') %}{{ part }}<{% endfor %}",
    "{{ m.content.split('</think>')[-1].lstrip('\\n') }}",
]
TEMPLATES = [
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" + body + "<|im_end|>\n{% endfor %}"
    "{{ tools | tojson }}{{ date_string }}{{ documents }}"
    for body in BODIES
]
"""Ways in which templates of models treat content."""


@cache
def _builders(model: NativeModel) -> list[PromptBuilder]:
    return [PromptBuilder(model, template) for template in ("", *TEMPLATES)]  # also ChatML


def controls(vocab: Vocabulary, tokens: list[int]) -> list[int]:
    return [t for t in tokens if vocab.specials.get(t, 0) & ATTR_CONTROL]


def decoded(vocab: Vocabulary, tokens: list[int]) -> str:
    return b"".join(vocab.piece(t) for t in tokens).decode()


@pytest.mark.parametrize("place", PLACES)
@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(text=HOSTILE)
def test_control_tokens_in_content_stay_text(
    place: Place, text: str, pup_builder: PromptBuilder
) -> None:
    builder, vocab = pup_builder, pup_builder.vocab
    tokens = builder.build(place(text)).tokens
    harmless = builder.build(place("x")).tokens
    assert controls(vocab, tokens) == controls(vocab, harmless)
    assert text.strip() in decoded(vocab, tokens) or place in (as_argument, as_reasoning)


@pytest.mark.parametrize("place", [*PLACES, *OTHER_PLACES])
@hypothesis_settings(max_examples=examples(20), deadline=None)
@given(text=HOSTILE)
def test_no_template_lets_content_write_control_tokens(
    place: Place, text: str, llama_model: NativeModel
) -> None:
    for builder in _builders(llama_model):
        tokens = builder.build(place(text)).tokens
        harmless = builder.build(place("y")).tokens
        assert controls(builder.vocab, tokens) == controls(builder.vocab, harmless)


@pytest.mark.parametrize("place", [as_user, as_result])
@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(text=HOSTILE)
def test_markers_from_users_and_tools_stay_text(
    place: Place, text: str, pup_builder: PromptBuilder
) -> None:
    builder, vocab = pup_builder, pup_builder.vocab
    tokens = builder.build(place(text)).tokens
    harmless = builder.build(place("x")).tokens
    specials = {t for t in vocab.specials if vocab.text(t) in builder.source}
    assert [t for t in tokens if t in specials] == [t for t in harmless if t in specials]


def test_markers_that_a_model_wrote_stay_markers(pup_model: NativeModel) -> None:
    tokens = PromptBuilder(pup_model).build(as_answer("<tool_call> is a marker")).tokens
    marker = pup_model.vocab.tokenize("<tool_call>")
    assert len(marker) == 1
    assert marker[0] in tokens


def test_two_harmless_ends_do_not_make_a_control_token(pup_model: NativeModel) -> None:
    """A template may put two contents side by side."""
    builder = PromptBuilder(pup_model)
    specials = builder.specials
    joined = specials.seal("<|im_") + specials.seal("end|>")
    assert specials.pattern.search(joined) is None
    assert specials.pattern.search(specials.seal("<|im_ ").rstrip() + "end|>") is None


@pytest.mark.parametrize("place", PLACES)
@hypothesis_settings(max_examples=examples(40), deadline=None)
@given(text=PLAIN)
def test_plain_text_is_tokenized_as_llama_cpp_does(
    place: Place, text: str, pup_builder: PromptBuilder, llama_builder: PromptBuilder
) -> None:
    for builder in (pup_builder, llama_builder):
        conversation = place(text)
        whole = builder.vocab.tokenize(builder.rendered(conversation), parse_special=True)
        assert builder.build(conversation).tokens == whole


def test_bos_comes_once(llama_model: NativeModel, pup_model: NativeModel) -> None:
    vocab = llama_model.vocab
    assert vocab.adds_bos
    tokens = PromptBuilder(llama_model).build(as_user("<s> hi")).tokens
    assert tokens[0] == vocab.bos
    assert tokens.count(vocab.bos) == 1
    without = PromptBuilder(llama_model, template="{{ messages[0].content }}")
    tokens = without.build(as_user("<s> hi")).tokens
    assert tokens[0] == vocab.bos
    assert tokens.count(vocab.bos) == 1
    assert pup_model.vocab.bos not in PromptBuilder(pup_model).build(as_user("hi")).tokens


@given(lines=st.lists(PLAIN, min_size=1, max_size=4))
@hypothesis_settings(max_examples=examples(30), deadline=None)
def test_a_longer_conversation_extends_the_shorter_one(
    lines: list[str], pup_builder: PromptBuilder
) -> None:
    builder = pup_builder
    messages: list[Message] = []
    before: list[int] = []
    for line in lines:
        messages.append(Message.user(line))
        tokens = builder.build(Conversation("sys", tuple(messages))).tokens
        assert tokens[: len(before)] == before
        before = tokens
        messages.append(Message.assistant(line.strip() or "ok"))


@given(data=st.data())
@hypothesis_settings(max_examples=examples(80), deadline=None)
def test_an_answer_comes_back_as_the_tokens_that_were_generated(
    data: st.DataObject, pup_model: NativeModel, pup_builder: PromptBuilder
) -> None:
    """Whatever merges the model chose: the text decides, the tokens are its own."""
    builder, vocab = pup_builder, pup_model.vocab
    ids = st.integers(0, vocab.size - 1).filter(lambda t: t not in controls(vocab, [t]))
    generated = data.draw(st.lists(ids, min_size=1, max_size=20))
    raw = b"".join(vocab.piece(t) for t in generated)
    text = raw.decode("utf-8", "replace")
    asked = (Message.user("q"),)
    prompt = builder.build(Conversation("", asked))
    builder.remember_generated(prompt.tail, generated, len(text))
    again = builder.build(Conversation("", (*asked, Message.assistant(text), Message.user("r"))))
    assert again.tokens[: len(prompt.tokens) + len(generated)] == prompt.tokens + generated
    if "\ufffd" not in text:
        conversation = Conversation("", (*asked, Message.assistant(text), Message.user("r")))
        assert decoded(vocab, again.tokens) == builder.rendered(conversation)


def test_only_what_was_shown_is_remembered(pup_model: NativeModel) -> None:
    vocab = pup_model.vocab
    builder = PromptBuilder(pup_model)
    letters = [t for c in "hello" for t in vocab.tokenize(c)]
    prompt = builder.build(as_user("q"))
    builder.remember_generated(prompt.tail, letters, 3)
    begun = (Message.user("q"), Message.assistant("hel"))
    whole = (Message.user("q"), Message.assistant("hello"))
    assert letters[:3] == _answer(builder, begun, prompt.tokens)[:3]
    assert letters != _answer(builder, whole, prompt.tokens)[: len(letters)]


def test_a_message_counts_what_it_adds(pup_model: NativeModel) -> None:
    builder = PromptBuilder(pup_model)
    call = ToolCall("c1", "list_directory", {"path": "src"})
    messages = (
        Message.user("Please list src for me."),
        Message.assistant("", tool_calls=(call,)),
        Message.tool(call, "a.py\nb.py"),
        Message.assistant("src holds a.py and b.py."),
    )
    sizes = [
        len(builder.build(Conversation("sys", messages[:n])).tokens)
        for n in range(1, len(messages) + 1)
    ]
    for i in range(1, len(messages)):
        assert builder.count_message(messages[i]) == sizes[i] - sizes[i - 1]
    assert builder.count_message(messages[0]) > 5


def _answer(builder: PromptBuilder, messages: tuple[Message, ...], before: list[int]) -> list[int]:
    return builder.build(Conversation("be brief", messages)).tokens[len(before) :]
