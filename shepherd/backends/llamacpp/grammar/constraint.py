"""What a request's answer is held to, as a grammar."""

import re
from dataclasses import dataclass

from shepherd.backends.llamacpp.grammar.calls import CallSyntax
from shepherd.backends.llamacpp.grammar.gbnf import Rules, check_grammar, literal, until
from shepherd.backends.llamacpp.grammar.schema import SchemaRules
from shepherd.backends.output import CallFormat, OutputStyle
from shepherd.backends.output.style import ThinkMarkers
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.session import Session

_ROOT = re.compile(r"""("(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\#[^\n]*)|(?<![\w-])root(?![\w-])""")
"""A string, a class or a comment, which stays, or the name of the root."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar in GBNF that holds from the first token.

    `foreign`: it came with the request, so it may be wrong.
    """

    grammar: str
    foreign: bool = False


class Constrainer:
    """Turns what a session asks for into a constraint, for one model."""

    def __init__(self, style: OutputStyle, syntax: CallSyntax | None) -> None:
        self._style = style
        self._syntax = syntax

    def constraint(self, session: Session, prompt_tail: str) -> Constraint | None:
        """What the answer is held to, None if to nothing.

        Raises InvalidRequestError for what can't be enforced with this model.
        """
        wanted = session.output_format
        if session.tool_choice is None and wanted is None:
            return None
        if CallFormat.HARMONY in self._style.formats:
            raise InvalidRequestError("What this model answers can't be held to a form.")
        rules = Rules()
        if wanted is None or session.tool_choice is not None:
            root = self._calls(rules, session)
        elif wanted.schema is not None:
            root = _schema(rules, wanted.schema, strict=wanted.strict)
            if session.tools:
                root = f"({root} | {self._calls(rules, session)})"
        else:
            return self._given(wanted.grammar, session, prompt_tail)
        rules.put("root", self._behind_thinking(rules, root, session, prompt_tail))
        return Constraint(rules.text())

    def _given(self, grammar: str, session: Session, prompt_tail: str) -> Constraint:
        """A grammar that came with the request, its root renamed if something comes before it."""
        if session.tools:
            raise InvalidRequestError("A grammar and tools can't be combined.")
        rules = Rules()
        root = self._behind_thinking(rules, "answer-root", session, prompt_tail)
        if root == "answer-root":
            return Constraint(grammar, foreign=True)
        rules.put("root", root)
        renamed = _ROOT.sub(lambda found: found[1] or "answer-root", check_grammar(grammar))
        return Constraint(f"{renamed}\n{rules.text()}", foreign=True)

    def _calls(self, rules: Rules, session: Session) -> str:
        choice, tools = session.tool_choice, session.tools
        if not tools:
            raise InvalidRequestError("A call is asked for, but no tools are offered.")
        if self._syntax is None:
            raise InvalidRequestError("This model's way of writing tool calls can't be enforced.")
        if choice is not None and choice.name:
            tools = [tool for tool in tools if tool.name == choice.name]
            if not tools:
                raise InvalidRequestError(f"The tool {choice.name!r} is not among those offered.")
        many = choice is None or not (choice.name or choice.single)
        return self._syntax.rule(rules, tools, many=many)

    def _behind_thinking(
        self, rules: Rules, answer: str, session: Session, prompt_tail: str
    ) -> str:
        """The answer, behind reasoning where the model reasons."""
        tail = prompt_tail.rstrip()
        for markers in self._style.think:
            if tail.endswith(markers.open):
                return f"{_thought(rules, markers)} {answer}"
        if session.thinking and self._style.think:
            markers = self._style.think[0]
            return f"({literal(markers.open)} {_thought(rules, markers)})? {answer}"
        return answer


def _thought(rules: Rules, markers: ThinkMarkers) -> str:
    """Any text up to the closing marker, and the newlines behind it that belong to it."""
    return f"{until(rules, 'reasoning', markers.close)} [\\n]{{0,{markers.after}}}"


def _schema(rules: Rules, schema: JsonObject, *, strict: bool) -> str:
    writer = SchemaRules(rules, schema)
    answer = writer.write("answer")
    if strict and writer.unenforced:
        words = ", ".join(sorted(writer.unenforced))
        raise InvalidRequestError(f"The JSON schema can't be enforced with strict: {words}.")
    return answer
