"""How calls are written, each after its family's chat template."""

import json
from typing import Any, cast

Arguments = dict[str, Any]
Call = tuple[str, Arguments]


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def hermes(call: Call, _index: int) -> str:
    return f"<tool_call>\n{named(call)}\n</tool_call>"


def named(call: Call, _index: int = 0, key: str = "arguments") -> str:
    return as_json({"name": call[0], key: call[1]})


def xml(call: Call, newline: str = "\n") -> str:
    values = "".join(
        f"<parameter={k}>{newline}{as_text(v)}{newline}</parameter>\n" for k, v in call[1].items()
    )
    return f"<function={call[0]}>\n{values}</function>"


def invoke(call: Call, prefix: str = "") -> str:
    values = "".join(
        f'<{prefix}parameter name="{k}">{as_text(v)}</{prefix}parameter>\n'
        for k, v in call[1].items()
    )
    return f'<{prefix}invoke name="{call[0]}">\n{values}</{prefix}invoke>'


def glm(call: Call, newline: str) -> str:
    values = "".join(
        f"{newline}<arg_key>{k}</arg_key>{newline}<arg_value>{as_text(v)}</arg_value>"
        for k, v in call[1].items()
    )
    return f"<tool_call>{call[0]}{values}{newline}</tool_call>"


def gemma_value(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return "{" + ",".join(f"{k}:{gemma_value(v, quote)}" for k, v in items) + "}"
    if isinstance(value, list):
        inner = (gemma_value(v, quote) for v in cast(list[Any], value))
        return f"[{','.join(inner)}]"
    return as_json(value)


def gemma4(call: Call, _index: int) -> str:
    written = gemma_value(call[1], '<|"|>')
    return f"<|tool_call>call:{call[0]}{written}<tool_call|>"


def function_gemma(call: Call, _index: int) -> str:
    written = gemma_value(call[1], "<escape>")
    return f"<start_function_call>call:{call[0]}{written}<end_function_call>"


def deepseek_v3(call: Call, _index: int) -> str:
    body = f"function<｜tool▁sep｜>{call[0]}\n```json\n{as_json(call[1])}\n```"
    return f"<｜tool▁call▁begin｜>{body}<｜tool▁call▁end｜>"


def deepseek_v31(call: Call, _index: int) -> str:
    return f"<｜tool▁call▁begin｜>{call[0]}<｜tool▁sep｜>{as_json(call[1])}<｜tool▁call▁end｜>"


def kimi(call: Call, index: int) -> str:
    head = f"<|tool_call_begin|>functions.{call[0]}:{index}<|tool_call_argument_begin|>"
    return f"{head}{as_json(call[1])}<|tool_call_end|>"


def kimi3(call: Call, index: int) -> str:
    values = "".join(
        f'<|open|>argument key="{k}" type="{json_type(v)}"<|sep|>{as_text(v)}'
        "<|close|>argument<|sep|>"
        for k, v in call[1].items()
    )
    head = f'<|open|>call tool="{call[0]}" index="{index + 1}"<|sep|>'
    return f"{head}{values}<|close|>call<|sep|>"


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {str: "string", bool: "boolean", dict: "object", list: "array"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "number")


def command(call: Call, index: int) -> str:
    action = {"tool_call_id": str(index), "tool_name": call[0], "parameters": call[1]}
    return f"    {as_json(action)}"


def harmony(call: Call, _index: int) -> str:
    head = f"<|channel|>commentary to=functions.{call[0]} <|constrain|>json<|message|>"
    return f"{head}{as_json(call[1])}<|call|>"


def python_call(call: Call, _index: int = 0) -> str:
    return f"{call[0]}({', '.join(f'{k}={v!r}' for k, v in call[1].items())})"


def param(call: Call, _index: int) -> str:
    values = "".join(f'<param name="{k}">{as_text(v)}</param>' for k, v in call[1].items())
    return f'<function name="{call[0]}">{values}</function>'
