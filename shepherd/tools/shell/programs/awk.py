"""Programs of awk that only compute and print: they run nothing and open no file of their own."""

import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\#[^\n]*)
    |(?P<end>[;{}])|(?P<newline>\n)
    |(?P<string>"(?:\\[^\n]|[^"\\\n])*")
    |(?P<value>[A-Za-z_]\w*|[0-9.][\w.]*|\$)
    |(?P<open>[(\[])|(?P<close>[)\]])
    |(?P<greater>>(?!=|>))
    |(?P<operator>\|\||&&|[<>=!]=|!~|\+\+|--|[-+*%^]=|[-+*%^!~<=?:,])""",
    re.VERBOSE,
)
_REGEX = re.compile(r"/(?:\\[^\n]|\[\^?\]?(?:\[:[a-z]+:\]|\\[^\n]|[^]\[\\/\n])*\]|[^\\\[/\n])+/")
_MAX_LENGTH = 10_000
_PRINTING = frozenset({"print", "printf"})
_REACHING = frozenset(
    {"system", "getline", "ENVIRON", "ARGV", "ARGC", "SYMTAB", "FUNCTAB", "PROCINFO"}
)
_BEFORE_REGEX = frozenset({"", "(", ",", "!", "~", "!~", "&&", "||", "{", "}", ";", "\n"})
_OPERAND = re.compile(
    r"(?!(?:print|printf|return|in|case|do|else|delete|next|nextfile|exit|break|continue|func"
    r"|function|BEGIN|END|BEGINFILE|ENDFILE)\Z)[\w.]+|.*[\])\"]",
    re.DOTALL,
)
_CONDITION = re.compile(r"\b(?:if|while|for|switch)\b")
"""A `/` behind the bracket of one of these begins an expression, not a division."""

_DIVISION = re.compile("/=?")
_OPTION = re.compile(r"-F.+|-v\w+=.*", re.DOTALL)
_REACHING_NAME = re.compile("|".join(_REACHING))


def only_prints(program: str) -> bool:
    """Whether every token of a program is read, and none of them reaches anything else."""
    if len(program) > _MAX_LENGTH:
        return False
    conditional = _CONDITION.search(program) is not None
    at, depth, last, prints = 0, 0, "", False
    while at < len(program):
        found = _slash(program, at, last, conditional=conditional) or _TOKEN.match(program, at)
        if found is None or found[0] in _REACHING:
            return False
        if found.lastgroup == "greater" and prints and depth == 0:
            return False
        depth += (found.lastgroup == "open") - (found.lastgroup == "close")
        if found.lastgroup == "end":
            prints = False
        prints = prints or found[0] in _PRINTING
        last = last if found.lastgroup == "blank" else found[0]
        at = found.end()
    return depth == 0


def awk_words_to_name(words: Sequence[str]) -> Iterator[int]:
    """How many words a rule must name for each that may do more than print."""
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        word = words[index]
        index += 2 if word in ("-F", "-v") else 1
        value = "".join(words[index - 1 : index])
        known = word in ("-F", "-v") or _OPTION.fullmatch(word)
        if not known or (word[:2] == "-v" and _REACHING_NAME.search(value)):
            yield min(index, len(words))
    index += words[index : index + 1] == ["--"]
    if index < len(words) and not only_prints(words[index]):
        yield index + 1
    operands = range(index + 1, len(words))
    yield from (n + 1 for n in operands if _REACHING_NAME.match(words[n]))


def _slash(program: str, at: int, last: str, *, conditional: bool) -> re.Match[str] | None:
    """A `/` after an operand divides; elsewhere it begins an expression."""
    if program[at] != "/":
        return None
    if last in _BEFORE_REGEX:
        return _REGEX.match(program, at)
    divides = _OPERAND.fullmatch(last) and not (last == ")" and conditional)
    return _DIVISION.match(program, at) if divides else None
