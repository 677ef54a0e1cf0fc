"""Scripts of sed that only edit text: none of their commands runs a program or opens a file."""

import re
from collections.abc import Iterator, Sequence

_BRACKET = r"\[\^?\]?(?:\[:[a-z]+:\]|\\[a-zA-Z.]|[^]\[\\\n])*\]"
_BLANKS = r"[ \t]*"
_END = rf"{_BLANKS}(?=[;\n}}#]|\Z)"
_LABEL = rf"{_BLANKS}[A-Za-z0-9_.-]*"
_TEXT = r"(?:\\\n)?[^\\\n]*(?:\\[^\\\n][^\\\n]*)*(?=\n|\Z)"
_DELIMITERS = "/|,#:@!%~="


def _regex(delimiter: str) -> str:
    """A regular expression without the delimiter: brackets count, so that no version differs."""
    return rf"(?:{_BRACKET}|\\[^\n]|[^\\\[\n{delimiter}])*"


def _replacement(delimiter: str) -> str:
    return rf"(?:\\[\s\S]|[^\\\n{delimiter}])*"


_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|/{_regex('/')}/[IM]*|\\,{_regex(',')},[IM]*)"
_ADDRESSES = (
    rf"(?:{_ADDRESS}{_BLANKS}(?:,{_BLANKS}(?:[+~][0-9]+|{_ADDRESS}){_BLANKS})?)?!*{_BLANKS}"
)
_SUBSTITUTIONS = "|".join(
    rf"s{d}{_regex(d)}{d}{_replacement(d)}{d}[gpiImM0-9]*{_END}"
    rf"|y{d}{_replacement(d)}{d}{_replacement(d)}{d}{_END}"
    for d in map(re.escape, _DELIMITERS)
)
_COMMAND = re.compile(
    rf"[\s;]+|\}}{_END}|#[^\n]*"
    rf"|{_ADDRESSES}(?:\{{|[=dDgGhHnNpPxzF]{_END}|[lLqQ]{_BLANKS}[0-9]*{_END}"
    rf"|:{_LABEL}{_END}|[btT]{_LABEL}{_END}|[aic]{_BLANKS}{_TEXT}|{_SUBSTITUTIONS})"
)

_SCRIPT = re.compile(r"-[nErsuz]*e|--expression")
_FLAGS = re.compile(
    r"-[nErsuz]+|-[nErsuz]*l[0-9]*|-[nErsuz]*i[\w.~-]*|--in-place(?:=[\w.~-]*)?|--quiet|--silent"
    r"|--regexp-extended|--separate|--unbuffered|--null-data|--zero-terminated|--posix|--debug"
    r"|--sandbox|--line-length=[0-9]+|--help|--version|--"
)


def only_edits(script: str) -> bool:
    """Whether every command of a script is read, and works on nothing but the text."""
    at = 0
    while at < len(script):
        found = _COMMAND.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return True


def sed_words_to_name(words: Sequence[str]) -> Iterator[int]:
    """How many words a rule must name for each that may do more than edit."""
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
