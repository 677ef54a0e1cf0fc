"""Recognises scripts of sed and awk that only work on text, without programs or files."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

_BRACKET = r"\[\^?\]?(?:\[:[a-z]+:\]|\\[a-zA-Z.]|[^]\[\\\n])*\]"
_SPACES = r"[ \t]*"
_END = rf"{_SPACES}(?=[;\n}}#]|\Z)"
_LABEL = rf"{_SPACES}[A-Za-z0-9_.-]*"
_TEXT = r"(?:\\\n)?[^\\\n]*(?:\\[^\\\n][^\\\n]*)*(?=\n|\Z)"
_DELIMITERS = "/|,#:@!%~="

_SCRIPT = re.compile(r"-[nErsuz]*e|--expression")
_FLAGS = re.compile(
    r"-[nErsuz]+|-[nErsuz]*l[0-9]*|-[nErsuz]*i[\w.~-]*|--in-place(?:=[\w.~-]*)?|--quiet|--silent"
    r"|--regexp-extended|--separate|--unbuffered|--null-data|--zero-terminated|--posix|--debug"
    r"|--sandbox|--line-length=[0-9]+|--help|--version|--"
)
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
"""A `/` after the bracket of one of these begins an expression, not a division."""

_DIVISION = re.compile("/=?")
_OPTION = re.compile(r"-F.+|-v\w+=.*", re.DOTALL)
_REACHING_NAME = re.compile("|".join(_REACHING))


def _regex(delimiter: str) -> str:
    """A regular expression without the delimiter, with brackets that all versions read alike."""
    return rf"(?:{_BRACKET}|\\[^\n]|[^\\\[\n{delimiter}])*"


def _replacement(delimiter: str) -> str:
    return rf"(?:\\[\s\S]|[^\\\n{delimiter}])*"


_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|/{_regex('/')}/[IM]*|\\,{_regex(',')},[IM]*)"
_ADDRESSES = (
    rf"(?:{_ADDRESS}{_SPACES}(?:,{_SPACES}(?:[+~][0-9]+|{_ADDRESS}){_SPACES})?)?!*{_SPACES}"
)


@cache
def _sed_command() -> re.Pattern[str]:
    """Compiled when a script is first read: that takes 2 % of the time to the first prompt."""
    substitutions = "|".join(
        rf"s{d}{_regex(d)}{d}{_replacement(d)}{d}[gpiImM0-9]*{_END}"
        rf"|y{d}{_replacement(d)}{d}{_replacement(d)}{d}{_END}"
        for d in map(re.escape, _DELIMITERS)
    )
    return re.compile(
        rf"[\s;]+|\}}{_END}|#[^\n]*"
        rf"|{_ADDRESSES}(?:\{{|[=dDgGhHnNpPxzF]{_END}|[lLqQ]{_SPACES}[0-9]*{_END}"
        rf"|:{_LABEL}{_END}|[btT]{_LABEL}{_END}|[aic]{_SPACES}{_TEXT}|{substitutions})"
    )


def only_edits(script: str) -> bool:
    """Whether every command of a script is recognised, and works only on the text."""
    command, at = _sed_command(), 0
    while at < len(script):
        match = command.match(script, at)
        if match is None or match.end() == at:
            return False
        at = match.end()
    return True


def sed_words_to_name(words: Sequence[str]) -> Iterator[int]:
    """For each word that may do more than edit, the number of words that a rule must name."""
    operand = script = False
    index = 1
    while index < len(words):
        word = words[index]
        if word.startswith("-") and word != "-":
            end = _option_end(words, index)
            script = script or end == index + 2 or word.startswith("--expression=")
            if not _is_known(words, index):
                yield min(end, len(words))
            index = end
            continue
        if not script and not operand and not only_edits(word):
            yield index + 1
        operand = operand or bool(word)
        index += 1


def _option_end(words: Sequence[str], index: int) -> int:
    return index + 2 if _SCRIPT.fullmatch(words[index]) else index + 1


def _is_known(words: Sequence[str], index: int) -> bool:
    word, following = words[index], words[index + 1 : index + 2]
    if _SCRIPT.fullmatch(word):
        return all(map(only_edits, following))
    if word.startswith("--expression="):
        return only_edits(word.partition("=")[2])
    return _FLAGS.fullmatch(word) is not None


def only_prints(program: str) -> bool:
    """Whether every token of a program is recognised, and none runs a program or opens a file."""
    if len(program) > _MAX_LENGTH:
        return False
    conditional = _CONDITION.search(program) is not None
    at, depth, last, prints = 0, 0, "", False
    while at < len(program):
        result = _slash(program, at, last, conditional=conditional) or _TOKEN.match(program, at)
        if result is None or result[0] in _REACHING:
            return False
        if result.lastgroup == "greater" and prints and depth == 0:
            return False
        depth += (result.lastgroup == "open") - (result.lastgroup == "close")
        if result.lastgroup == "end":
            prints = False
        prints = prints or result[0] in _PRINTING
        last = last if result.lastgroup == "blank" else result[0]
        at = result.end()
    return depth == 0


def awk_words_to_name(words: Sequence[str]) -> Iterator[int]:
    """For each word that may do more than print, the number of words that a rule must name."""
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
    """The token at a `/`: a division after an operand, else an expression; None if unclear."""
    if program[at] != "/":
        return None
    if last in _BEFORE_REGEX:
        return _REGEX.match(program, at)
    divides = _OPERAND.fullmatch(last) and not (last == ")" and conditional)
    return _DIVISION.match(program, at) if divides else None
