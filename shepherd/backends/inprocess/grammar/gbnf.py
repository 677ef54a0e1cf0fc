"""The rules of a grammar, and the smallest things that they are made of."""

from shepherd.errors import InvalidRequestError

MOST_TEXT = 262_144
"""Characters of the longest grammar."""

MOST_NESTING = 100
"""Brackets in brackets: llama.cpp parses them recursively."""


class Rules:
    """Named rules that grow; equal bodies under one name are one rule."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._size = 0

    def add(self, name: str, body: str) -> str:
        """The name under which the rule is kept: `name`, numbered if that is another one's."""
        free, number = name, 1
        while free in self._bodies and self._bodies[free] != body:
            number += 1
            free = f"{name}-{number}"
        return self.put(free, body)

    def reserve(self, name: str) -> str:
        """A new name whose body comes later by `put`: for rules that refer to themselves."""
        free, number = name, 1
        while free in self._bodies:
            number += 1
            free = f"{name}-{number}"
        self._bodies[free] = ""
        return free

    def put(self, name: str, body: str) -> str:
        """Set the body of `name`; raises InvalidRequestError when the grammar gets too long."""
        if name not in self._bodies or not self._bodies[name]:
            self._size += len(name) + len(body)
            if self._size > MOST_TEXT:
                raise InvalidRequestError("The schema or the tools are too large to be enforced.")
        self._bodies[name] = body
        return name

    def text(self) -> str:
        """All rules, ready for llama.cpp."""
        return "\n".join(f"{name} ::= {body}" for name, body in self._bodies.items())


def literal(text: str) -> str:
    """Exactly this text."""
    return '"' + "".join(map(_escaped, text)) + '"'


def until(rules: Rules, name: str, marker: str) -> str:
    """A rule for any text up to and with the first `marker`."""
    states = [rules.reserve(f"{name}-{i}") for i in range(len(marker))]
    letters = sorted(set(marker))
    others = "[^" + "".join(map(_escaped, letters)) + "]"
    for i, state in enumerate(states):
        ways = [f"{others} {states[0]}"]
        for letter in letters:
            reached = _overlap(marker, marker[:i] + letter)
            end = reached == len(marker)
            ways.append(literal(letter) if end else f"{literal(letter)} {states[reached]}")
        rules.put(state, " | ".join(ways))
    return states[0]


def check_grammar(text: str) -> str:
    """Return a grammar that llama.cpp may be given; raises InvalidRequestError."""
    if not text.strip() or "\0" in text:
        raise InvalidRequestError("The grammar is empty or has a zero character in it.")
    if len(text) > MOST_TEXT:
        raise InvalidRequestError(f"The grammar is longer than {MOST_TEXT} characters.")
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")" and depth > 0)
        deepest = max(deepest, depth)
    if deepest > MOST_NESTING:
        raise InvalidRequestError(f"The grammar nests more than {MOST_NESTING} brackets.")
    return text


def _overlap(marker: str, seen: str) -> int:
    """How much of the marker's beginning the end of `seen` is."""
    return next(n for n in range(len(seen), -1, -1) if marker.startswith(seen[len(seen) - n :]))


def _escaped(character: str) -> str:
    code = ord(character)
    if character.isascii() and (character.isalnum() or character in " _.,:;<>/{}()=|"):
        return character
    if code < 0x80:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
