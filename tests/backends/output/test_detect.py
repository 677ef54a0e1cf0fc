"""Families by template and vocabulary."""

import pytest

from shepherd.backends.output.derive import CONTENT, with_separator, with_thought
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC, STYLES, detect_style
from shepherd.messages import Message

TEMPLATES = {
    "llama3": "{{ 'Environment: ipython\n' }}<|start_header_id|>…<|eot_id|>{{ '<|eom_id|>' }}",
    "glm": "[gMASK]<sop><|system|>…<|observation|>…<|assistant|><think>",
    "chatml": "{{ '<|im_start|>' + role + '\n' }}…<|im_end|>…<think>…<tool_call>",
    "harmony": "# Valid channels: analysis, commentary, final.…<|start|>assistant<|channel|>final",
    "gemma4": "<|turn>model\n…<|channel>thought\n…<channel|>",
    "deepseek": "<｜User｜>…<｜Assistant｜>…<｜tool▁calls▁begin｜>",
    "mistral": "[INST]…[/INST]…[TOOL_CALLS]…[ARGS]",
    "granite": "<|start_of_role|>…<|end_of_role|>…<think></think>…<response></response>…",
    "kimi3": "{{ '<|open|>' + tag }}…<|sep|>…<|close|>…<|end_of_msg|>",
    "command": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>…<|START_ACTION|>…<|START_THINKING|>",
    "muse": "{{ '<|start|>assistant to=self<|message|>' + reasoning + '<|eom|>' }}…",
    "generic": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}",
}


@pytest.mark.parametrize("family", TEMPLATES)
def test_family_by_template(family: str) -> None:
    assert detect_style(TEMPLATES[family]).family == family


def test_a_distilled_model_is_what_its_template_says() -> None:
    both = TEMPLATES["deepseek"] + TEMPLATES["chatml"]
    assert detect_style(both).family == "chatml"


@pytest.mark.parametrize(
    ("token", "family"),
    [("<|im_start|>", "chatml"), ("<|channel|>", "harmony"), ("[TOOL_CALLS]", "mistral")],
)
def test_family_by_vocabulary_where_the_template_is_silent(token: str, family: str) -> None:
    assert detect_style("", {"<s>", token}).family == family
    assert detect_style(TEMPLATES["llama3"], {token}).family == "llama3"


def test_thinking_markers_come_from_the_template() -> None:
    markers = {m.open for m in detect_style("…[THINK]…[/THINK]…[INST]…").think}
    assert markers == {"[THINK]", "<think>"}
    assert [m.open for m in GENERIC.think] == ["<think>"]
    seed = detect_style("<seed:bos>…<seed:think>…</seed:think>")
    assert [m.open for m in seed.think] == ["<seed:think>", "<think>"]
    assert detect_style(TEMPLATES["harmony"]).think == ()


def test_every_family_can_be_detected() -> None:
    assert TEMPLATES.keys() == STYLES.keys()


@pytest.mark.parametrize(
    ("rendered", "separator"),
    [
        ("<|im_start|>assistant\n{content}\n<tool_call>\n{…}", "\n"),
        ("<|im_start|>assistant\n{content}<tool_call>\n{…}", ""),
        ("<|im_start|>assistant\n{content}\n\n<tool_call>\n{…}", "\n\n"),
        ("the template dropped the content", "\n"),
    ],
)
def test_separator_by_rendering(rendered: str, separator: str) -> None:
    text = rendered.replace("{content}", CONTENT)
    assert with_separator(STYLES["chatml"], lambda _: text).separator == separator


@pytest.mark.parametrize("tag", ["answer", "response"])
def test_tags_around_an_answer_come_from_the_template(tag: str) -> None:
    template = f"…{{{{ '<{tag}>\\n' + content + '\\n</{tag}>' }}}}…"
    output = OutputFilter(detect_style(template))
    output.feed(f"<think>\nHm.\n</think>\n<{tag}>\nYes.\n</{tag}>")
    output.finish()
    assert (output.result.reasoning, output.result.content) == ("Hm.", "Yes.")
    results = f"…{{{{ '<{tag}>' + content + '</{tag}>' }}}}…"
    assert detect_style(results).answer == ()


def test_reasoning_between_unknown_tags_comes_from_rendering() -> None:
    def render(message: Message | None) -> str:
        assert message is not None
        return f"ai:<mm:think>{message.reasoning}</mm:think>\n{message.content}"

    (own, *others) = with_thought(GENERIC, render).think
    assert (own.open, own.close, own.after) == ("<mm:think>", "</mm:think>", 1)
    assert others == list(GENERIC.think)
