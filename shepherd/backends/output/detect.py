"""Which family a model belongs to, by its chat template and vocabulary."""

from collections.abc import Collection
from dataclasses import replace

from shepherd.backends.output.style import (
    ALL_FORMATS,
    GENERIC,
    THINK,
    AnswerMarkers,
    CallFormat,
    OutputStyle,
    ThinkMarkers,
)

_GEMMA_THINK = ThinkMarkers("<|channel>thought", "<channel|>", after=0)
_BRACKET_THINK = ThinkMarkers("[THINK]", "[/THINK]", after=0)
_ACTION_THINK = ThinkMarkers("<|START_THINKING|>", "<|END_THINKING|>", after=0)
_OTHER_THINK = (
    _BRACKET_THINK,
    _GEMMA_THINK,
    ThinkMarkers("<seed:think>", "</seed:think>"),
    ThinkMarkers("<thinking>", "</thinking>"),
    _ACTION_THINK,
    ThinkMarkers("<|inner_prefix|>", "<|inner_suffix|>", after=0),
    ThinkMarkers("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", after=1),
)
_RESPONSE = AnswerMarkers("<response>", "</response>")
_COMMAND_ANSWERS = (
    AnswerMarkers("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    AnswerMarkers("<|START_TEXT|>", "<|END_TEXT|>"),
)
_NO_CHANNELS = ALL_FORMATS - {CallFormat.HARMONY}

LLAMA3 = OutputStyle("llama3", formats=_NO_CHANNELS, separator="")
GLM = OutputStyle("glm", formats=_NO_CHANNELS)
CHATML = OutputStyle("chatml", formats=_NO_CHANNELS)
HARMONY = OutputStyle("harmony", think=(), formats=frozenset({CallFormat.HARMONY}), separator="")
GEMMA4 = OutputStyle("gemma4", think=(_GEMMA_THINK, THINK), formats=_NO_CHANNELS, separator="")
DEEPSEEK = OutputStyle("deepseek", formats=_NO_CHANNELS, separator="")
MISTRAL = OutputStyle("mistral", think=(_BRACKET_THINK, THINK), formats=_NO_CHANNELS, separator="")
GRANITE = OutputStyle("granite", formats=_NO_CHANNELS, answer=(_RESPONSE,))
COMMAND = OutputStyle(
    "command",
    think=(_ACTION_THINK, THINK),
    formats=_NO_CHANNELS,
    separator="",
    answer=_COMMAND_ANSWERS,
)
KIMI3 = OutputStyle(
    "kimi3",
    think=(ThinkMarkers("<|open|>think<|sep|>", "<|close|>think<|sep|>", after=0),),
    formats=_NO_CHANNELS,
    separator="",
    answer=(
        AnswerMarkers("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        AnswerMarkers("", "<|close|>message<|sep|>"),
    ),
)

_FAMILIES: tuple[tuple[tuple[str, ...], OutputStyle], ...] = (
    (("Environment: ipython", "<|eom_id|>"), LLAMA3),
    (("<|observation|>",), GLM),
    (("<|im_start|>", "<|im_end|>"), CHATML),
    (("<|channel|>", "Valid channels:"), HARMONY),
    (("<|channel>thought",), GEMMA4),
    (("<｜Assistant｜>",), DEEPSEEK),
    (("[TOOL_CALLS]",), MISTRAL),
    (("[INST]", "[THINK]"), MISTRAL),
    (("<|start_of_role|>", "<response>"), GRANITE),
    (("<|START_OF_TURN_TOKEN|>", "<|START_ACTION|>"), COMMAND),
    (("<|open|>", "<|close|>", "<|sep|>"), KIMI3),
)
STYLES = {style.family: style for style in (GENERIC, *(style for _, style in _FAMILIES))}
"""All styles by family."""

_BY_TOKENS: tuple[tuple[str, OutputStyle], ...] = (
    ("<|channel|>", HARMONY),
    ("<channel|>", GEMMA4),
    ("<｜Assistant｜>", DEEPSEEK),
    ("[TOOL_CALLS]", MISTRAL),
    ("<|observation|>", GLM),
    ("<|im_start|>", CHATML),
    ("<|open|>", KIMI3),
)


def detect_style(template: str, vocabulary: Collection[str] = ()) -> OutputStyle:
    """The style of the family that `template` was written for; `GENERIC` if it tells nothing.

    `vocabulary`: the model's special tokens, asked only where the template is silent.
    """
    style = _family(template, vocabulary)
    think = (m for m in _OTHER_THINK if m.open in template and m.close in template)
    return replace(style, think=tuple(dict.fromkeys((*think, *style.think))))


def _family(template: str, vocabulary: Collection[str]) -> OutputStyle:
    for needles, style in _FAMILIES:
        if all(n in template for n in needles):
            return style
    for token, style in _BY_TOKENS:
        if token in vocabulary:
            return style
    return GENERIC


def with_separator(style: OutputStyle, rendered: str, content: str) -> OutputStyle:
    """The style with the separator that the template really writes.

    `rendered` is a conversation that ends in an assistant message of `content` (a word that
    occurs nowhere else, such as a random one) with one tool call.
    """
    behind = rendered.partition(content)[2]
    blank = behind[: len(behind) - len(behind.lstrip())]
    return replace(style, separator=blank) if behind else style
