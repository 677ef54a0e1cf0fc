"""How a model family writes reasoning and tool calls, and which family a model belongs to."""

from collections.abc import Collection

from msgspec import Struct, structs

from shepherd.backends.output import known
from shepherd.backends.output.notation import Notation


class ThinkMarkers(Struct, frozen=True):
    """The markers around reasoning.

    One newline after `open` and one before `close` belong to the markers. Up to `after` newlines
    after `close` belong to them too.
    """

    open: str
    close: str
    after: int = 2


class AnswerMarkers(Struct, frozen=True):
    """The markers around the answer: `open` counts before all content, `close` after it."""

    open: str
    close: str


THINK = ThinkMarkers("<think>", "</think>")


class OutputStyle(Struct, frozen=True):
    """The formats in a model's output; `separator` precedes the first call in its template.

    `notations` describe its own way of writing calls. `channels`: headers name what a message is,
    as GPT-OSS writes them; `marked`: markers in the text do.
    """

    family: str = "generic"
    think: tuple[ThinkMarkers, ...] = (THINK,)
    channels: bool = False
    marked: bool = True
    separator: str = "\n"
    answer: tuple[AnswerMarkers, ...] = ()
    notations: tuple[Notation, ...] = ()


GENERIC = OutputStyle(channels=True)


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
_OTHER_ANSWERS = (AnswerMarkers("<answer>", "</answer>"), _RESPONSE)
_COMMAND_ANSWERS = (
    AnswerMarkers("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    AnswerMarkers("<|START_TEXT|>", "<|END_TEXT|>"),
)

LLAMA3 = OutputStyle("llama3", separator="")
GLM = OutputStyle("glm")
CHATML = OutputStyle("chatml")
HARMONY = OutputStyle("harmony", think=(), channels=True, marked=False, separator="")
GEMMA4 = OutputStyle("gemma4", think=(_GEMMA_THINK, THINK), separator="")
DEEPSEEK = OutputStyle("deepseek", separator="")
MISTRAL = OutputStyle("mistral", think=(_BRACKET_THINK, THINK), separator="")
GRANITE = OutputStyle("granite", answer=(_RESPONSE,))
COMMAND = OutputStyle(
    "command",
    think=(_ACTION_THINK, THINK),
    separator="",
    answer=_COMMAND_ANSWERS,
)
KIMI3 = OutputStyle(
    "kimi3",
    think=(ThinkMarkers("<|open|>think<|sep|>", "<|close|>think<|sep|>", after=0),),
    separator="",
    answer=(
        AnswerMarkers("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        AnswerMarkers("", "<|close|>message<|sep|>"),
    ),
)

_NEXT = "<|eom|><|start|>assistant"
MUSE = OutputStyle(
    "muse",
    think=(ThinkMarkers("to=self<|message|>", _NEXT, after=0),),
    separator="",
    answer=(AnswerMarkers("to=user<|message|>", _NEXT), AnswerMarkers("", "<|eom|>")),
    notations=(known.MUSE,),
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
    (("to=self<|message|>", "<|eom|>"), MUSE),
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
    """The style of the family that `template` was written for; `GENERIC` if it is unknown.

    `vocabulary` are the model's special tokens, which decide if the template does not.
    """
    style = _family(template, vocabulary)
    written = (m for m in _OTHER_THINK if m.open in template and m.close in template)
    without_repeats = dict.fromkeys((*written, *style.think))
    answers = (m for m in _OTHER_ANSWERS if _on_lines(m.open, template) and m.close in template)
    answer = tuple(dict.fromkeys((*style.answer, *answers)))
    return structs.replace(style, think=tuple(without_repeats), answer=answer)


def _on_lines(tag: str, template: str) -> bool:
    """Whether the template writes the tag with a line break behind it, as around an answer."""
    return f"{tag}\n" in template or f"{tag}\\n" in template


def _family(template: str, vocabulary: Collection[str]) -> OutputStyle:
    """The style of the first family whose texts are all in the template."""
    for texts, style in _FAMILIES:
        if all(text in template for text in texts):
            return style
    for token, style in _BY_TOKENS:
        if token in vocabulary:
            return style
    return GENERIC
