"""The offered tools, calls to them in parsed values, and what is wrong with other text."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from shepherd import json_text, messages
from shepherd.backends.output.repair import loads, read_json, repair_json

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_MAX_REFS = 8
"""References that are followed, because a schema may refer to itself."""

NAME_KEYS = ("name", "function", "tool_name", "tool")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
CALL_KEYS = frozenset(("name", "function", "type", "id", "arguments", "parameters"))
"""The keys of an object that stands alone and is a call."""

_OTHER_KEYS = ("id", "type", "call_id", "tool_call_id")
_DECORATION = re.compile(r"(?:functions\.)?([^\s:]+?)(?::\d+|\.call)?")

_MAX_LENGTH = 20_000
_NEAR = 12
_MAX_NAMES = 40
_JSON_NAME = re.compile(rf"[\"']?\b(?:{'|'.join(NAME_KEYS)})\b[\"']?\s*:\s*[\"']([\w.:-]+)[\"']")
_JSON_ARGUMENTS = re.compile(rf"[\"']?\b(?:{'|'.join(ARGUMENT_KEYS)})\b[\"']?\s*:")


class ParsedCall(NamedTuple):
    """A call to an offered tool."""

    name: str
    arguments: messages.JsonObject


class ToolCatalog:
    """The offered tools, by name."""

    def __init__(self, tools: Sequence[messages.ToolSpec]) -> None:
        self.parameters = {t.name: t.parameters for t in tools}
        """The JSON schema of each tool's arguments."""
        self.names = tuple(self.parameters)

    def __bool__(self) -> bool:
        return bool(self.names)

    def known(self, written: str) -> str | None:
        """The name of the tool that is `written`, if it is offered; `functions.NAME:0` is NAME."""
        bare = written.strip()
        if bare in self.parameters:
            return bare
        match = _DECORATION.fullmatch(bare)
        return match[1] if match and match[1] in self.parameters else None

    def may_become_known(self, written: str) -> bool:
        """Whether more text can make `written` the name of a tool."""
        name = written.removeprefix("functions.")
        base, colon, index = name.rpartition(":")  # Kimi numbers its calls, as in `now:0`
        if colon and base in self.parameters:
            return not index or index.isdigit()
        written_names = (*self.names, *(f"{n}.call" for n in self.names if name.startswith(n)))
        return "functions.".startswith(written) or any(n.startswith(name) for n in written_names)

    def misfit(self, call: ParsedCall) -> str:
        """Why the arguments of a call do not fit its tool; "" if they do."""
        return _misfit(call.name, call.arguments, self)

    def argument_names(self, tool: str) -> tuple[str, ...]:
        return tuple(properties(self.parameters[tool]))

    def from_json_text(self, text: str, *, explicit: bool = False) -> tuple[ParsedCall, ...]:
        """The calls in `text`: an object or a list of them; empty if it is anything else.

        `explicit`: the arguments must be under a key of their own. Repaired JSON counts only if the
        arguments fit the tool's schema.
        """
        try:
            return self._from_value(loads(text), explicit=explicit)
        except ValueError:
            pass  # with the usual mistakes of models, perhaps
        try:
            calls = self._from_value(repair_json(text), explicit=explicit)
        except ValueError:
            return ()
        has_misfits = any(misfits(c.arguments, self.parameters[c.name]) for c in calls)
        return () if has_misfits else calls

    def _from_value(self, value: Any, *, explicit: bool) -> tuple[ParsedCall, ...]:
        """The calls in an object or a list of them; empty if one of its items is no call."""
        items = cast(list[Any], value) if isinstance(value, list) else [value]
        return all_or_none(self._from_object(item, explicit=explicit) for item in items)

    def from_arguments_text(self, name: str, text: str) -> tuple[ParsedCall, ...]:
        """The call of `name` with arguments as JSON text; no text means no arguments."""
        tool = self.known(name)
        if tool is None:
            return ()
        if not text.strip():
            return (ParsedCall(tool, {}),)
        return self.from_json_text(f'{{"name": "{tool}", "arguments": {text}}}')

    def from_texts(self, tool: str, values: Mapping[str, str]) -> ParsedCall:
        """The call, with each argument converted to the type in the tool's schema."""
        schema = self.parameters[tool]
        known = properties(schema)
        arguments = {
            name: from_text(text, known.get(name), schema) for name, text in values.items()
        }
        return ParsedCall(tool, arguments)

    def _from_object(self, value: Any, *, explicit: bool) -> ParsedCall | None:
        """The call that an object describes; None if it describes none."""
        data = _unwrapped(value)
        name_key = next((k for k in NAME_KEYS if isinstance(data.get(k), str)), None)
        if explicit and not data.keys() <= CALL_KEYS:
            return None
        if name_key is None:
            return None if explicit else self._named_by_key(data)
        tool = self.known(data[name_key])
        if tool is None or is_definition(data):
            return None
        argument_key = next((k for k in ARGUMENT_KEYS if k in data), None)
        if argument_key is not None:
            arguments = as_object_of(data[argument_key])
            return None if arguments is None else ParsedCall(tool, arguments)
        # Some models write the arguments beside the name.
        beside = {k: v for k, v in data.items() if k != name_key and k not in _OTHER_KEYS}
        has_others = not beside.keys() <= set(self.argument_names(tool))
        return None if explicit or has_others else ParsedCall(tool, beside)

    def _named_by_key(self, data: messages.JsonObject) -> ParsedCall | None:
        """The call in an object whose only key is the tool's name, as Apertus writes it."""
        if len(data) != 1:
            return None
        name, arguments = next(iter(data.items()))
        tool = self.known(name)
        if tool is None or not isinstance(arguments, dict):
            return None
        return ParsedCall(tool, cast(messages.JsonObject, arguments))


def all_or_none(calls: Iterable[ParsedCall | None]) -> tuple[ParsedCall, ...]:
    """All of the calls; empty if one of them is None, which means no call."""
    listed = list(calls)
    result = tuple(call for call in listed if call is not None)
    return result if len(result) == len(listed) else ()


def _unwrapped(value: Any) -> messages.JsonObject:
    """The object with name and arguments, which OpenAI's form has under `function`; {} if none."""
    data = json_text.as_object(value)
    return json_text.as_object(data["function"]) if isinstance(data.get("function"), dict) else data


def is_definition(data: messages.JsonObject) -> bool:
    """Whether `data` is the definition of a tool, which some models repeat in place of a call."""
    return "description" in data and "parameters" in data


def as_object_of(value: Any) -> messages.JsonObject | None:
    """Arguments as an object, also if they are an object in a string; nothing means none."""
    if isinstance(value, str):
        if not value.strip():
            return {}
        try:
            value = read_json(value)
        except ValueError:
            return None
    if value is None:
        return {}
    return cast(messages.JsonObject, value) if isinstance(value, dict) else None


def properties(parameters: messages.JsonObject) -> messages.JsonObject:
    """The schema of each argument by name."""
    return json_text.as_object(parameters.get("properties"))


def types_of(schema: Any, root: messages.JsonObject, depth: int = 0) -> frozenset[str]:
    """The JSON types that `schema` allows; empty if it does not state any."""
    if not isinstance(schema, Mapping) or depth > _MAX_REFS:
        return frozenset()
    schema = cast(Mapping[str, Any], schema)
    if isinstance(schema.get("$ref"), str):
        return types_of(json_text.referenced(root, schema["$ref"]), root, depth + 1)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(str(n) for n in cast(list[Any], named))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        parts = [types_of(c, root, depth + 1) for c in cast(list[Any], choices)]
        # One choice that states no type allows any.
        return frozenset[str]().union(*parts) if all(parts) else frozenset()
    values = schema.get("enum")
    if isinstance(values, list):
        return frozenset(
            next((name for name in _PYTHON_TYPES if _is(value, name)), "null")
            for value in cast(list[Any], values)
        )
    return frozenset()


def from_text(text: str, schema: Any, root: messages.JsonObject) -> Any:
    """The argument in `text`, converted to the schema's type; the text itself in case of doubt."""
    types = types_of(schema, root)
    trimmed = text.strip()
    if "null" in types and trimmed in ("null", "None"):
        return None
    if not types or "string" in types:  # it may look like a number and be meant as text
        return text
    value = _literal(trimmed, types)
    return text if value is None else value


def misfits(arguments: messages.JsonObject, parameters: messages.JsonObject) -> list[str]:
    """Why `arguments` do not fit the schema: one is missing, or has a type that is not allowed."""
    required = json_text.as_list(parameters.get("required"))
    wrong = [f"{name} is missing" for name in required if name not in arguments]
    known = properties(parameters)
    for name, value in arguments.items():
        types = types_of(known.get(name), parameters)
        if types and not any(_is(value, type_) for type_ in types):
            wrong.append(f"{name} must be {' or '.join(sorted(types))}")
    return wrong


def _is(value: Any, type_name: str) -> bool:
    """Whether the value has this type of JSON; an unknown type may be anything."""
    if isinstance(value, bool) and type_name in ("integer", "number"):
        return False  # to Python a bool is an int
    return isinstance(value, _PYTHON_TYPES.get(type_name, (object,)))


def _literal(text: str, types: frozenset[str]) -> Any:
    """The value in a text, if it has one of the types; None otherwise."""
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = read_json(text)
    except ValueError:
        return None
    if any(_is(value, name) for name in types):
        return value
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if "integer" in types and is_whole else None  # written as 3.0


def problem_of(body: str, catalog: ToolCatalog) -> str:
    """The problem of a body that no reader understood; "" if it does not look like a call."""
    body = body[:_MAX_LENGTH].strip()
    name = _JSON_NAME.search(body) if body.startswith(("{", "[")) else None
    if name is None or not _JSON_ARGUMENTS.search(body):
        return ""
    tool = catalog.known(name[1])
    if tool is None:
        return unknown_tool(name[1], catalog)
    try:
        value: Any = repair_json(body)
    except ValueError:
        return f"The call of {tool} is not valid JSON{_where(body)}."
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    if not items or not isinstance(items[0], dict):
        return ""
    data = _unwrapped(items[0])
    if is_definition(data):
        return f"This is the definition of {tool}, not a call of it."
    arguments = next((data[key] for key in ARGUMENT_KEYS if key in data), None)
    return _misfit(tool, arguments, catalog)


def problem_of_arguments(name: str, text: str, catalog: ToolCatalog) -> str:
    """The problem with the arguments of a call in JSON text."""
    tool = catalog.known(name)
    if tool is None:
        return unknown_tool(name, catalog)
    try:
        value: Any = repair_json(text)
    except ValueError:
        return f"The arguments of {tool} are not valid JSON{_where(text)}."
    return _misfit(tool, value, catalog)


def _misfit(tool: str, arguments: Any, catalog: ToolCatalog) -> str:
    """Why the arguments do not fit the tool; "" if they do."""
    if not isinstance(arguments, dict):
        return f"The arguments of {tool} must be a JSON object."
    wrong = misfits(cast(dict[str, Any], arguments), catalog.parameters[tool])
    return f"The arguments of {tool} do not fit: {', '.join(wrong)}." if wrong else ""


def unknown_tool(name: str, catalog: ToolCatalog) -> str:
    """That there is no such tool, and which there are."""
    names = ", ".join(catalog.names[:_MAX_NAMES])
    return f"There is no tool {name}; the tools are {names}."


def _where(text: str) -> str:
    """The message of the strict parser and the text where it stopped, such as ` (…, near "…")`."""
    try:
        loads(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - _NEAR) : error.pos + _NEAR]
        return f" ({error.msg}, near {json.dumps(near, ensure_ascii=False)})"
    except ValueError as error:  # nested too deep, or a number that is too large
        return f" ({error})"
    return ""
