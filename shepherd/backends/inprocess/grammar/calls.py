"""The syntax of tool calls in a model's template, learned from rendered text."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shepherd.backends.inprocess.grammar.lark import Rules, characters, json_value, literal
from shepherd.backends.inprocess.grammar.schema import prepare
from shepherd.backends.output import OutputFilter, OutputStyle
from shepherd.messages import JsonObject, Message, ToolCall, ToolSpec

_MARKER = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")
_SPACINGS = ((", ", ": "), (",", ":"))

CONTENT = "zq8content"
NAMES = ("zq8first", "zq8second")
PROBE = (
    Message.user("."),
    Message.assistant(
        CONTENT, tool_calls=tuple(ToolCall(f"zq8id{n[3:6]}", n, {"zq8": 1, "k": 2}) for n in NAMES)
    ),
)
"""A conversation that shows how a template formats two calls."""


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """The text around calls: opening, NAME, middle, ARGUMENTS, then between or closing.

    `between` is "" if an answer has only one call. `marker` is the beginning of `opening` that
    identifies a call, "" if any text may begin so. `comma` and `colon` are the JSON separators.
    """

    opening: str
    middle: str
    between: str
    closing: str
    comma: str = ", "
    colon: str = ": "

    @property
    def marker(self) -> str:
        match = _MARKER.match(self.opening)
        return match.group() if match else ""

    def write(self, calls: Sequence[tuple[str, str]]) -> str:
        """The calls as the model writes them, from names and arguments as JSON."""
        inner = self.between.join(f"{name}{self.middle}{text}" for name, text in calls)
        return f"{self.opening}{inner}{self.closing}"

    def rule(self, rules: Rules, tools: Sequence[ToolSpec], *, many: bool, behind: str = "") -> str:
        """A rule for calls of these tools; `behind` is the part of the opening before it."""
        alternatives = [self._call(rules, tool, f"tool{i}") for i, tool in enumerate(tools)]
        call = rules.add("call", " | ".join(alternatives))
        more = f" ({characters(self.between)} {call})*" if many and self.between else ""
        opening = characters(self.opening.removeprefix(behind))
        return rules.add("calls", f"{opening} {call}{more} {characters(self.closing)}")

    def _call(self, rules: Rules, tool: ToolSpec, name: str) -> str:
        schema = prepare(tool.parameters).value
        arguments = rules.add(f"{name}_arguments", json_value(schema, self.comma, self.colon))
        named = literal(json_text(tool.name) + self.middle)
        return rules.add(name, f"{named} {arguments}")


def json_text(text: str) -> str:
    """The inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def learn_syntax(rendered: str, ends: Sequence[str]) -> CallSyntax | None:
    """The syntax in a rendered `PROBE`; None if the calls are not a name with JSON arguments.

    `ends` are the texts of the tokens that end an answer.
    """
    for comma, colon in _SPACINGS:
        arguments = json.dumps({"zq8": 1, "k": 2}, separators=(comma, colon))
        parts = _parts(rendered, arguments)
        if parts is None:
            continue
        opening, middle, between, second, rest = parts
        closing = _before(rest, ends)
        if _before(between, ends) != between:
            between = ""  # each call is a separate message
        syntax = CallSyntax(opening.lstrip(), middle, between, closing, comma, colon)
        plain = not any("zq8" in part for part in (opening, middle, between, closing))
        return syntax if plain and middle == second else None
    return None


def is_understood(syntax: CallSyntax, style: OutputStyle) -> bool:
    """Whether the output filter can parse the syntax."""
    calls: list[tuple[str, JsonObject]] = [("one", {"a": "b"}), ("two", {})]
    if not syntax.between:
        calls = calls[:1]
    output = OutputFilter(style, [ToolSpec(name, "") for name, _ in calls])
    output.feed(syntax.write([(name, json.dumps(value)) for name, value in calls]))
    output.finish()
    read = output.result
    return not read.content and [(c.name, c.arguments) for c in read.tool_calls] == calls


def _parts(rendered: str, arguments: str) -> tuple[str, str, str, str, str] | None:
    """The text before the first name, between names and arguments, and after the last arguments."""
    parts: list[str] = []
    rest = rendered.partition(CONTENT)[2]
    for needle in (NAMES[0], arguments, NAMES[1], arguments):
        part, result, rest = rest.partition(needle)
        if not result:
            return None
        parts.append(part)
    return parts[0], parts[1], parts[2], parts[3], rest


def _before(text: str, ends: Sequence[str]) -> str:
    """The text before the first of `ends`."""
    result = [at for end in ends if end and (at := text.find(end)) >= 0]
    return text[: min(result)] if result else text
