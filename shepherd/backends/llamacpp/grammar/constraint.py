"""What a request's answer is held to, as a grammar."""

from dataclasses import dataclass

from shepherd.backends.llamacpp.grammar.calls import CallSyntax
from shepherd.backends.llamacpp.grammar.gbnf import Rules, literal, until
from shepherd.backends.output import OutputStyle
from shepherd.errors import InvalidRequestError
from shepherd.session import Session

_GAP = r"[ \n]{0,4}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar in GBNF that holds from the first token."""

    grammar: str


class Constrainer:
    """Turns what a session asks for into a constraint, for one model."""

    def __init__(self, style: OutputStyle, syntax: CallSyntax | None) -> None:
        self._style = style
        self._syntax = syntax

    def constraint(self, session: Session, prompt_tail: str) -> Constraint | None:
        """What the answer is held to, None if to nothing.

        Raises InvalidRequestError for what can't be enforced with this model.
        """
        if session.tool_choice is None:
            return None
        rules = Rules()
        self._root(rules, self._calls(rules, session), session, prompt_tail)
        return Constraint(rules.text())

    def _calls(self, rules: Rules, session: Session) -> str:
        choice, tools = session.tool_choice, session.tools
        if choice is None or not tools:
            raise InvalidRequestError("A call is asked for, but no tools are offered.")
        if self._syntax is None:
            raise InvalidRequestError("This model's way of writing tool calls can't be enforced.")
        if choice.name:
            tools = [tool for tool in tools if tool.name == choice.name]
            if not tools:
                raise InvalidRequestError(f"The tool {choice.name!r} is not among those offered.")
        many = not (choice.name or choice.single)
        return self._syntax.rule(rules, tools, many=many)

    def _root(self, rules: Rules, answer: str, session: Session, prompt_tail: str) -> None:
        """The grammar's root: the answer, behind reasoning where the model reasons."""
        tail = prompt_tail.rstrip()
        for markers in self._style.think:
            if tail.endswith(markers.open):
                rules.put("root", f"{until(rules, 'think', markers.close)} {_GAP} {answer}")
                return
        if session.thinking and self._style.think:
            markers = self._style.think[0]
            thought = f"{literal(markers.open)} {until(rules, 'think', markers.close)}"
            rules.put("root", f"({thought} {_GAP})? {answer}")
            return
        rules.put("root", answer)
