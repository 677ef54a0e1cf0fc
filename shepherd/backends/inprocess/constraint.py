"""What an answer must look like: the syntax of a model's calls, and grammars for them."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from shepherd.backends.inprocess.gbnf import add_gbnf
from shepherd.backends.inprocess.lark import Rules, characters, json_value, literal, through
from shepherd.backends.inprocess.matcher import ignored_keywords
from shepherd.backends.inprocess.schema import prepare
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import CallFormat, OutputStyle, ThinkMarkers
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, ToolCall, ToolSpec
from shepherd.session import OutputFormat, Session

if TYPE_CHECKING:
    from llguidance import LLMatcher


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

_MAX_KNOWN = 64


class CallSyntax(Struct, frozen=True):
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
        """Such as `<tool_call>` or `[TOOL_CALLS]`; "" if the opening begins with other text."""
        match = _MARKER.match(self.opening)
        return match.group() if match else ""

    def write(self, calls: Sequence[tuple[str, str]]) -> str:
        """The calls as the model writes them, from names and arguments as JSON."""
        inner = self.between.join(f"{name}{self.middle}{text}" for name, text in calls)
        return f"{self.opening}{inner}{self.closing}"

    def rule(self, rules: Rules, tools: Sequence[ToolSpec], *, many: bool, behind: str = "") -> str:
        """The name of a rule for a call of these tools, or for `many`.

        `behind` is the part of the opening that comes before the rule.
        """
        alternatives = [self._call(rules, tool, f"tool{i}") for i, tool in enumerate(tools)]
        call = rules.add("call", " | ".join(alternatives))
        more = f" ({characters(self.between)} {call})*" if many and self.between else ""
        opening = characters(self.opening.removeprefix(behind))
        return rules.add("calls", f"{opening} {call}{more} {characters(self.closing)}")

    def _call(self, rules: Rules, tool: ToolSpec, rule_name: str) -> str:
        """A rule called `rule_name` for a call of the tool, without what is around calls."""
        schema = prepare(tool.parameters).value
        value = json_value(schema, self.comma, self.colon)
        arguments = rules.add(f"{rule_name}_arguments", value)
        tool_name = literal(json_text(tool.name) + self.middle)
        return rules.add(rule_name, f"{tool_name} {arguments}")


def json_text(text: str) -> str:
    """The text inside a JSON string, without the quotes: `a"b` gives `a\\"b`."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def learn_syntax(rendered: str, ends: Sequence[str]) -> CallSyntax | None:
    """The syntax in a rendered `PROBE`; None if the calls are not a name with JSON arguments.

    `ends` are the texts of the tokens that end an answer.
    """
    for comma, colon in _SPACINGS:
        arguments = re.escape(json.dumps({"zq8": 1, "k": 2}, separators=(comma, colon)))
        calls = "(.*?)".join((CONTENT, NAMES[0], arguments, NAMES[1], arguments))
        match = re.search(f"{calls}(.*)", rendered, re.DOTALL)
        if match is None:
            continue
        opening, middle, between, middle_of_second, behind_calls = match.groups()
        closing = _before_first(ends, behind_calls)
        if _before_first(ends, between) != between:
            between = ""  # each call is a separate message
        # Ids of calls or repeated names show that a call has more than a name and arguments.
        has_more = any("zq8" in part for part in (opening, middle, between, closing))
        if has_more or middle != middle_of_second:
            return None
        return CallSyntax(opening.lstrip(), middle, between, closing, comma, colon)
    return None


def is_understood(syntax: CallSyntax, style: OutputStyle) -> bool:
    """Whether the output filter can parse the syntax."""
    calls: list[tuple[str, JsonObject]] = [("one", {"a": "b"}), ("two", {})]
    if not syntax.between:
        calls = calls[:1]  # an answer has only one
    output = OutputFilter(style, [ToolSpec(name, "") for name, _ in calls])
    output.feed(syntax.write([(name, json.dumps(value)) for name, value in calls]))
    output.finish()
    read = output.result
    return not read.content and [(c.name, c.arguments) for c in read.tool_calls] == calls


def _before_first(ends: Sequence[str], text: str) -> str:
    """The text before the first of `ends`; all of it if none is in it."""
    for end in filter(None, ends):
        text = text.partition(end)[0]
    return text


class Constraint(Struct, frozen=True):
    """A grammar for llguidance that applies from the first token.

    `foreign`: not all of it comes from schemas. `trigger`: it applies only to calls, from this
    marker to the call's end. `opening` is the text between the marker and the tool's name, one of
    `names` as JSON writes it. `reasoning`: the answer begins inside reasoning. `enforced`: the
    request is refused if the grammar can't be used. `dropped` are the keywords of the answer's
    schema that are not in the grammar; None if no schema describes the answer.
    """

    grammar: str
    foreign: bool = False
    trigger: str = ""
    opening: str = ""
    names: tuple[str, ...] = ()
    reasoning: bool = False
    enforced: bool = True
    dropped: frozenset[str] | None = None


class CompiledConstraint(Struct, frozen=True):
    """A constraint and a matcher at its grammar's beginning; callers only copy the matcher."""

    constraint: Constraint
    matcher: "LLMatcher"

    @property
    def unenforced(self) -> list[str]:
        """The keywords of the answer's schema that are not enforced."""
        dropped = self.constraint.dropped
        return [] if dropped is None else sorted(dropped.union(ignored_keywords(self.matcher)))


class Constrainer:
    """Makes constraints from a session's output format and tools, for one model."""

    def __init__(
        self, style: OutputStyle, syntax: CallSyntax | None, *, free_calls: bool = True
    ) -> None:
        """`free_calls`: whether the schemas also apply to calls that the request did not force."""
        self._style = style
        self._syntax = syntax
        self.checks_calls = free_calls and syntax is not None and bool(syntax.marker)
        """Whether calls that the model makes by itself are held to the schemas."""
        self._known_grammars: dict[str, str] = {}
        """For calls that the model makes by itself, by the tools that are offered."""

    def constraint(self, session: Session, prompt_tail: str) -> Constraint | None:
        """The constraint of the answer, None without one.

        Raises InvalidRequestError for a requirement that can't be enforced with this model.
        """
        output_format = session.output_format
        if session.tool_choice is None and output_format is None:
            return self._lazy(session, prompt_tail)
        if CallFormat.HARMONY in self._style.formats:
            # It writes control tokens of channels around its text, which these grammars lack.
            raise InvalidRequestError("What this model answers can't be held to a form.")
        rules = Rules()
        if output_format is None or session.tool_choice is not None:
            # A call that must be made has no text beside it that could have a format.
            answer, dropped = self._calls(rules, session), None
        else:
            answer, dropped = self._answer(rules, session, output_format)
        start = self._behind_thinking(rules, answer, session, prompt_tail)
        foreign = output_format is not None and bool(output_format.grammar)
        return Constraint(rules.text(start), foreign, dropped=dropped)

    def _answer(
        self, rules: Rules, session: Session, output_format: OutputFormat
    ) -> tuple[str, frozenset[str] | None]:
        """A rule for the answer itself, and what its schema loses."""
        if output_format.schema is None:
            if session.tools:
                raise InvalidRequestError("A grammar and tools can't be combined.")
            return add_gbnf(rules, output_format.grammar), None
        try:
            schema = prepare(output_format.schema, strict=output_format.strict)
        except InvalidRequestError as error:
            field = "json_schema" if session.raw_prompt else "response_format"
            raise InvalidRequestError(str(error), field) from error
        answer = rules.add("answer", json_value(schema.value, strict=output_format.strict))
        if session.tools:  # the model may still call one of them first
            answer = f"({answer} | {self._calls(rules, session)})"
        return answer, schema.unenforced

    def _lazy(self, session: Session, prompt_tail: str) -> Constraint | None:
        """The grammar of the calls that the model makes by itself; None if they are not checked."""
        if not (self.checks_calls and session.tools and self._syntax):
            return None
        marker, tools = self._syntax.marker, session.callable_tools
        key = json.dumps([(tool.name, tool.parameters, tool.enforced) for tool in tools])
        if key not in self._known_grammars:
            if len(self._known_grammars) >= _MAX_KNOWN:
                self._known_grammars.clear()
            self._known_grammars[key] = _lazy_grammar(self._syntax, tools)
        grammar = self._known_grammars[key]
        enforced = any(tool.enforced for tool in tools)
        if not grammar:
            if enforced:
                raise InvalidRequestError("The calls of these tools can't be held to a grammar.")
            return None
        return Constraint(
            grammar,
            trigger=marker,
            opening=self._syntax.opening.removeprefix(marker),
            names=tuple(json_text(tool.name) for tool in tools),
            reasoning=self._open_thought(prompt_tail) is not None,
            enforced=enforced,
        )

    def _calls(self, rules: Rules, session: Session) -> str:
        """A rule for the calls that the request requires, by the name of a tool or any of them."""
        choice, tools = session.tool_choice, session.tools
        if not tools:
            raise InvalidRequestError("A call is required, but no tools are offered.")
        if self._syntax is None:
            raise InvalidRequestError("This model's way of writing tool calls can't be enforced.")
        if choice is not None and choice.name:
            tools = [tool for tool in tools if tool.name == choice.name]
            if not tools:
                raise InvalidRequestError(f"The tool {choice.name!r} is not among those offered.")
        is_one_call = choice is not None and (choice.name or choice.single)
        return self._syntax.rule(rules, tools, many=not is_one_call)

    def _behind_thinking(
        self, rules: Rules, answer: str, session: Session, prompt_tail: str
    ) -> str:
        """The answer, after reasoning if the model reasons."""
        markers = self._open_thought(prompt_tail)
        if markers is not None:
            return f"{_thought(rules, markers)} {answer}"
        if session.thinking and self._style.think:
            markers = self._style.think[0]  # the prompt has not opened it: the model may
            return f"({characters(markers.open)} {_thought(rules, markers)})? {answer}"
        return answer

    def _open_thought(self, prompt_tail: str) -> ThinkMarkers | None:
        """The markers of the reasoning in which the prompt ends, if it ends in reasoning."""
        end = prompt_tail.rstrip()
        return next((marks for marks in self._style.think if end.endswith(marks.open)), None)


def _lazy_grammar(syntax: CallSyntax, tools: Sequence[ToolSpec]) -> str:
    """A grammar for one call behind its marker, "" if an enforced schema can't be expressed.

    A tool with another such schema may be called with any arguments.
    """
    rules = Rules()
    try:
        offered = [_expressible(tool) for tool in tools]
        return rules.text(syntax.rule(rules, offered, many=False, behind=syntax.marker))
    except InvalidRequestError:
        return ""  # the caller knows whether that matters


def _expressible(tool: ToolSpec) -> ToolSpec:
    """The tool, with a schema for any object if its own can't be expressed."""
    try:
        prepare(tool.parameters)
    except InvalidRequestError:
        if tool.enforced:
            raise  # any other object would break the promise
        return structs.replace(tool, parameters={"type": "object"})
    return tool


def _thought(rules: Rules, markers: ThinkMarkers) -> str:
    """Any text up to the closing marker, and the following newlines that belong to it."""
    newline = rules.add("newline", literal("\n"))
    newlines = [f"{newline}?"] * markers.after
    return " ".join((through(rules, markers.close), *newlines))
