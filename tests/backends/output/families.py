"""How each family's chat template writes reasoning, content and calls, written anew in Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.backends.output.writers import (
    Call,
    as_json,
    command,
    deepseek_v3,
    deepseek_v31,
    function_gemma,
    gemma4,
    glm,
    harmony,
    hermes,
    invoke,
    kimi,
    kimi3,
    named,
    param,
    python_call,
    xml,
)


@dataclass(frozen=True)
class Family:
    """A template; `write(call, index)` writes one call.

    `tame`: strings are written as they are, so what looks like markup can't be told from it.
    `spoken` stands around the content, `separator` between it and the calls. `head` begins a
    message and `turn_end` ends it.
    """

    write: Callable[[Call, int], str]
    style: str = "generic"
    begin: str = ""
    between: str = ""
    end: str = ""
    separator: str = "\n"
    thought: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    spoken: tuple[str, str] = ("", "")
    tame: bool = False
    many: bool = True
    head: str = "assistant:\n"
    turn_end: str = "<|end_of_turn|>\n"

    def calls(self, calls: Sequence[Call]) -> str:
        written = self.between.join(self.write(call, i) for i, call in enumerate(calls))
        return f"{self.begin}{written}{self.end}" if calls else ""

    def render(self, reasoning: str, content: str, calls: Sequence[Call]) -> str:
        """An assistant message as the model is taught to write it."""
        thought = self.thought[0] + reasoning + self.thought[1] if reasoning else ""
        separator = self.separator if content and calls else ""
        spoken = self.spoken[0] + content + self.spoken[1] if content else ""
        return thought + spoken + separator + self.calls(calls)


_NEXT = "<|end|><|start|>assistant"

FAMILIES = {
    "Hermes, Qwen, Granite 4": Family(hermes, "chatml", between="\n"),
    "Qwen3-Coder": Family(
        lambda call, _: f"<tool_call>\n{xml(call)}\n</tool_call>",
        "chatml",
        between="\n",
        separator="\n\n",
        tame=True,
    ),
    "Qwen3-Coder without a wrapper": Family(
        lambda call, _: xml(call), "chatml", between="\n", tame=True
    ),
    "Llama 3": Family(
        lambda call, _: named(call, key="parameters"), "llama3", many=False, separator="\n"
    ),
    "Llama 3, tagged": Family(
        lambda call, _: named(call, key="parameters"),
        "llama3",
        begin="<|python_tag|>",
        separator="",
        between="; ",
    ),
    "Llama 3, functions": Family(
        lambda call, _: f"<function={call[0]}>{as_json(call[1])}</function>",
        "llama3",
        separator="",
    ),
    "Llama 4": Family(python_call, "llama3", begin="[", between=", ", end="]"),
    "LFM2": Family(
        python_call,
        "chatml",
        begin="<|tool_call_start|>[",
        between=", ",
        end="]<|tool_call_end|>",
        separator="",
    ),
    "Mistral, old": Family(
        named,
        "mistral",
        begin="[TOOL_CALLS][",
        between=", ",
        end="]",
        separator="",
        thought=("[THINK]", "[/THINK]"),
    ),
    "Mistral, new": Family(
        lambda call, _: f"[TOOL_CALLS]{call[0]}[ARGS]{as_json(call[1])}",
        "mistral",
        separator="",
        thought=("[THINK]", "[/THINK]"),
    ),
    "DeepSeek V3": Family(
        deepseek_v3,
        "deepseek",
        begin="<｜tool▁calls▁begin｜>",
        between="\n",
        end="<｜tool▁calls▁end｜>",
        separator="",
    ),
    "DeepSeek V3.1": Family(
        deepseek_v31,
        "deepseek",
        begin="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        separator="",
    ),
    "DeepSeek V3.2": Family(
        lambda call, _: invoke(call, "｜DSML｜"),
        "deepseek",
        begin="<｜DSML｜function_calls>\n",
        between="\n",
        end="\n</｜DSML｜function_calls>",
        separator="\n\n",
        tame=True,
    ),
    "GLM-4.5": Family(lambda call, _: glm(call, "\n"), "glm", between="\n", tame=True),
    "GLM-4.7": Family(lambda call, _: glm(call, ""), "glm", separator="", tame=True),
    "Gemma 4": Family(
        gemma4,
        "gemma4",
        separator="",
        thought=("<|channel>thought\n", "\n<channel|>"),
        tame=True,
    ),
    "FunctionGemma": Family(function_gemma, separator="", tame=True),
    "Granite 3.3": Family(
        named,
        "granite",
        begin="<|tool_call|>[",
        between=", ",
        end="]",
        thought=("<think>", "</think>"),
        spoken=("<response>", "</response>"),
    ),
    "Phi-4-mini": Family(named, begin="functools[", between=", ", end="]"),
    "Phi-4-mini, tagged": Family(
        named, begin="<|tool_call|>[", between=", ", end="]<|/tool_call|>", separator=""
    ),
    "Kimi K2": Family(
        kimi,
        begin="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
        separator="",
    ),
    "Kimi K2, XML": Family(
        lambda call, _: invoke(call),
        begin="<function_calls>\n",
        between="\n",
        end="\n</function_calls>",
        tame=True,
    ),
    "Kimi K3": Family(
        kimi3,
        "kimi3",
        begin="<|open|>tools<|sep|>",
        end="<|close|>tools<|sep|>",
        separator="",
        thought=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        spoken=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        tame=True,
    ),
    "MiniMax M1": Family(
        named, begin="<tool_calls>\n", between="\n", end="\n</tool_calls>"
    ),
    "MiniMax M2": Family(
        lambda call, _: invoke(call),
        begin="<minimax:tool_call>\n",
        between="\n",
        end="\n</minimax:tool_call>",
        tame=True,
    ),
    "Command R7B": Family(
        command,
        "command",
        begin="<|START_ACTION|>[\n",
        between=",\n",
        end="\n]<|END_ACTION|>",
        separator="",
        thought=("<|START_THINKING|>", "<|END_THINKING|>"),
        spoken=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    "GPT-OSS": Family(
        harmony,
        "harmony",
        head="<|start|>assistant",
        turn_end="",
        between="<|start|>assistant",
        separator="",
        thought=("<|channel|>analysis<|message|>", _NEXT),
        spoken=("<|channel|>commentary<|message|>", _NEXT),
    ),
    "Nemotron": Family(named, begin="<TOOLCALL>[", between=", ", end="]</TOOLCALL>"),
    "Seed-OSS": Family(
        lambda call, _: f"<seed:tool_call>\n{xml(call, '')}\n</seed:tool_call>",
        between="\n",
        separator="\n\n",
        tame=True,
    ),
    "Apertus": Family(
        lambda call, _: as_json({call[0]: call[1]}),
        begin="<|tools_prefix|>[",
        between=", ",
        end="]<|tools_suffix|>",
        separator="",
    ),
    "GigaChat": Family(
        named, begin="<|function_call|>", separator="", many=False
    ),
    "MiniCPM5": Family(param, "chatml", between="\n", tame=True),
}  # fmt: skip
"""By name. Those without a family of their own are read in any style."""
