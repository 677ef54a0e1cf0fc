"""Explains to a model why its text is not a valid call."""

import json
import re
from typing import Any, cast

from shepherd.backends.output.calls.catalog import (
    ARGUMENT_KEYS,
    NAME_KEYS,
    ToolCatalog,
    is_definition,
    misfits,
)
from shepherd.backends.output.calls.repair import loads, repair_json

_MAX_LENGTH = 20_000
_NEAR = 12
_MAX_NAMES = 40
_JSON_NAME = re.compile(rf"[\"']?\b(?:{'|'.join(NAME_KEYS)})\b[\"']?\s*:\s*[\"']([\w.:-]+)[\"']")
_JSON_ARGUMENTS = re.compile(rf"[\"']?\b(?:{'|'.join(ARGUMENT_KEYS)})\b[\"']?\s*:")
_OTHER_NAME = re.compile(
    r"(?:<｜tool▁call▁begin｜>|<\|tool_call_begin\|>)?\s*(?:"
    r"<[\w:｜-]*(?:function|invoke)(?:=|\s+name\s*=\s*)[\"']?(?P<xml>[^\"'<>\s]+)[\"']?\s*>"
    r"|(?P<glm>[\w.-]+)\s*<arg_key>"
    r"|call:(?P<gemma>[\w.-]+)\s*\{"
    r"|<\|open\|>call tool=\"(?P<xtml>[^\"]+)\""
    r"|function<｜tool▁sep｜>(?P<deepseek>[\w.-]+)\s"
    r"|(?P<section>[\w.:-]+)\s*(?:<｜tool▁sep｜>|<\|tool_call_argument_begin\|>)"
    r"|\[?\s*(?P<python>[\w.-]+)\(\s*\w+\s*="
    r")"
)


def problem_of(body: str, catalog: ToolCatalog) -> str:
    """The problem of a body that no reader understood; "" if it does not look like a call."""
    body = body[:_MAX_LENGTH].strip()
    if body.startswith(("{", "[")) and (name := _JSON_NAME.search(body)):
        return _json_problem(name[1], body, catalog) if _JSON_ARGUMENTS.search(body) else ""
    match = _OTHER_NAME.match(body)
    if match is None:
        return ""
    written = next(filter(None, match.groups()))
    tool = catalog.known(written)
    if tool is None:
        return _unknown(written, catalog)
    brace = body.find("{", match.start())
    problem = problem_of_arguments(tool, body[brace:], catalog) if brace >= 0 else ""
    return problem or f"The call of {tool} is not complete or not well formed."


def problem_of_arguments(name: str, text: str, catalog: ToolCatalog) -> str:
    """The problem with the arguments of a call in JSON text."""
    tool = catalog.known(name)
    if tool is None:
        return _unknown(name, catalog)
    try:
        value: Any = repair_json(text)
    except ValueError:
        return f"The arguments of {tool} are not valid JSON{_where(text)}."
    return _misfit(tool, value, catalog)


def _json_problem(name: str, body: str, catalog: ToolCatalog) -> str:
    """The problem of a call that was written as JSON."""
    tool = catalog.known(name)
    if tool is None:
        return _unknown(name, catalog)
    try:
        value: Any = repair_json(body)
    except ValueError:
        return f"The call of {tool} is not valid JSON{_where(body)}."
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    item = items[0] if items else None
    if not isinstance(item, dict):
        return ""
    data = cast(dict[str, Any], item)
    if isinstance(data.get("function"), dict):
        data = cast(dict[str, Any], data["function"])
    if is_definition(data):
        return f"This is the definition of {tool}, not a call of it."
    arguments = next((data[key] for key in ARGUMENT_KEYS if key in data), None)
    return _misfit(tool, arguments, catalog)


def _misfit(tool: str, arguments: Any, catalog: ToolCatalog) -> str:
    if not isinstance(arguments, dict):
        return f"The arguments of {tool} must be a JSON object."
    wrong = misfits(cast(dict[str, Any], arguments), catalog.parameters(tool))
    return f"The arguments of {tool} do not fit: {', '.join(wrong)}." if wrong else ""


def _unknown(name: str, catalog: ToolCatalog) -> str:
    names = ", ".join(catalog.names[:_MAX_NAMES])
    return f"There is no tool {name}; the tools are {names}."


def _where(text: str) -> str:
    """The message of the strict parser, and the position."""
    try:
        loads(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - _NEAR) : error.pos + _NEAR]
        return f" ({error.msg}, near {json.dumps(near, ensure_ascii=False)})"
    except ValueError as error:
        return f" ({error})"
    return ""
