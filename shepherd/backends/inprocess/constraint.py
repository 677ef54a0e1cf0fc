"""What an answer must look like, as a grammar."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from shepherd.backends.inprocess.calls import calls_rule, json_text
from shepherd.backends.inprocess.gbnf import add_gbnf
from shepherd.backends.inprocess.lark import Rules, characters, json_value, literal, through
from shepherd.backends.inprocess.matcher import ignored_keywords
from shepherd.backends.inprocess.schema import prepare
from shepherd.backends.output.notation import HOLES, Notation
from shepherd.backends.output.style import OutputStyle, ThinkMarkers
from shepherd.errors import InvalidRequestError
from shepherd.messages import ToolSpec
from shepherd.session import OutputFormat, Session

if TYPE_CHECKING:
    from llguidance import LLMatcher


_MAX_KNOWN = 64

_HARMONY_THOUGHT = ThinkMarkers(
    "<|channel|>analysis<|message|>", "<|end|><|start|>assistant", after=0
)
_FINAL = "<|channel|>final<|message|>"
"""Around the reasoning and before the answer of models that write in channels."""


class Constraint(Struct, frozen=True):
    """A grammar for llguidance that applies from the first token.

    `foreign`: not all of it comes from schemas. `trigger`: it applies only to calls, from this
    marker to the call's end. `opening` is the text between the marker and the tool's name, one of
    `names` as JSON writes it, and `behind_name` the character behind that. `thoughts` are the
    markers of reasoning, and `reasoning`: the answer begins inside of it. `enforced`: the request
    is refused if the grammar can't be used. `dropped` are the keywords of the answer's schema that
    are not in the grammar; None if no schema describes the answer.
    """

    grammar: str
    foreign: bool = False
    trigger: str = ""
    opening: str = ""
    names: tuple[str, ...] = ()
    behind_name: str = '"'
    thoughts: tuple[ThinkMarkers, ...] = ()
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

    def __init__(self, style: OutputStyle, *, free_calls: bool = True) -> None:
        """`free_calls`: whether the schemas also apply to calls that the request did not force."""
        self._style = style
        self._has_channels = style.channels
        self._notation = notation = style.notations[0] if style.notations else None
        is_marked = notation is not None and notation.marker and not HOLES.search(notation.lead)
        self.rewinds = free_calls and notation is not None and not notation.prompted
        """Whether a call that went wrong can be written again under a grammar."""
        self.checks_calls = free_calls and bool(is_marked)
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
        rules = Rules()
        if output_format is None or session.tool_choice is not None:
            # A call that must be made has no text beside it that could have a format.
            answer, dropped = self._calls(rules, session), None
        else:
            answer, dropped = self._answer(rules, session, output_format)
        start = self._behind_thinking(rules, answer, session, prompt_tail)
        foreign = output_format is not None and bool(output_format.grammar)
        return Constraint(rules.text(start), foreign, dropped=dropped)

    def again(self, tools: Sequence[ToolSpec]) -> Constraint | None:
        """The constraint of calls in place of one that went wrong; None if there is none."""
        grammar = _lazy_grammar(self._notation, tools, many=True) if self._notation else ""
        return Constraint(grammar, enforced=False) if grammar else None

    def _answer(
        self, rules: Rules, session: Session, output_format: OutputFormat
    ) -> tuple[str, frozenset[str] | None]:
        """A rule for the answer itself, and what its schema loses."""
        if output_format.schema is None:
            if session.tools:
                raise InvalidRequestError("A grammar and tools can't be combined.")
            if self._has_channels:
                raise InvalidRequestError("What this model answers can't be held to a grammar.")
            return add_gbnf(rules, output_format.grammar), None
        try:
            schema = prepare(output_format.schema, strict=output_format.strict)
        except InvalidRequestError as error:
            field = "json_schema" if session.raw_prompt else "response_format"
            raise InvalidRequestError(str(error), field) from error
        answer = rules.add("answer", json_value(schema.value, strict=output_format.strict))
        if self._has_channels:
            answer = f"{characters(_FINAL)} {answer}"
        if session.tools:  # the model may still call one of them first
            answer = f"({answer} | {self._calls(rules, session)})"
        return answer, schema.unenforced

    def _lazy(self, session: Session, prompt_tail: str) -> Constraint | None:
        """The grammar of the calls that the model makes by itself; None if they are not checked."""
        if not (self.checks_calls and session.tools and self._notation):
            return None
        marker, tools = self._notation.marker, session.callable_tools
        key = json.dumps([(tool.name, tool.parameters, tool.enforced) for tool in tools])
        if key not in self._known_grammars:
            if len(self._known_grammars) >= _MAX_KNOWN:
                self._known_grammars.clear()
            notation = self._notation
            many = bool(notation.end)
            self._known_grammars[key] = _lazy_grammar(notation, tools, marker, many=many)
        grammar = self._known_grammars[key]
        enforced = any(tool.enforced for tool in tools)
        if not grammar:
            if enforced:
                raise InvalidRequestError("The calls of these tools can't be held to a grammar.")
            return None
        return Constraint(
            grammar,
            trigger=marker,
            opening=self._notation.lead.removeprefix(marker),
            names=tuple(json_text(tool.name) for tool in tools),
            behind_name=self._notation.behind_name,
            thoughts=self._style.think,
            reasoning=self._open_thought(prompt_tail) is not None,
            enforced=enforced,
        )

    def _calls(self, rules: Rules, session: Session) -> str:
        """A rule for the calls that the request requires, by the name of a tool or any of them."""
        choice, tools = session.tool_choice, session.tools
        if not tools:
            raise InvalidRequestError("A call is required, but no tools are offered.")
        if self._notation is None:
            raise InvalidRequestError("This model's way of writing tool calls can't be enforced.")
        if choice is not None and choice.name:
            tools = [tool for tool in tools if tool.name == choice.name]
            if not tools:
                raise InvalidRequestError(f"The tool {choice.name!r} is not among those offered.")
        is_one_call = choice is not None and (choice.name or choice.single)
        return calls_rule(rules, self._notation, tools, many=not is_one_call)

    def _behind_thinking(
        self, rules: Rules, answer: str, session: Session, prompt_tail: str
    ) -> str:
        """The answer, after reasoning if the model reasons."""
        markers = self._open_thought(prompt_tail)
        if markers is not None:
            return f"{_thought(rules, markers)} {answer}"
        thoughts = (_HARMONY_THOUGHT,) if self._has_channels else self._style.think
        if (session.thinking or self._has_channels) and thoughts:
            markers = thoughts[0]  # the prompt has not opened it: the model may
            return f"({characters(markers.open)} {_thought(rules, markers)})? {answer}"
        return answer

    def _open_thought(self, prompt_tail: str) -> ThinkMarkers | None:
        """The markers of the reasoning in which the prompt ends, if it ends in reasoning."""
        end = prompt_tail.rstrip()
        return next((marks for marks in self._style.think if end.endswith(marks.open)), None)


def _lazy_grammar(
    notation: Notation, tools: Sequence[ToolSpec], marker: str = "", *, many: bool
) -> str:
    """A grammar behind the marker of calls, "" if an enforced schema can't be expressed.

    It is for one call, or for several where one text ends them all. A tool with another such
    schema may be called with any arguments.
    """
    rules = Rules()
    try:
        offered = [_expressible(tool) for tool in tools]
        return rules.text(calls_rule(rules, notation, offered, many=many, behind=marker))
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
