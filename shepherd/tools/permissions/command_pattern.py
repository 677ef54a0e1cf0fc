"""Patterns over commands, word by word: `git status *`.

A `*` as the last word stands for any number of words; elsewhere wildcards stay inside one word;
what is quoted is literal.
"""

import re
import shlex
from functools import lru_cache

from shepherd.tools.permissions.rules import Decision, Rule


def command_matches(rule: Rule, command: str) -> bool:
    """Whether the rule's pattern meets `command` (in shell quoting).

    A rule that allows must meet the whole command as it is written. One that asks or denies is
    read generously: it meets longer commands, and the program under any directory.
    """
    words = _command_words(command)
    pattern, open_end = _compile(rule.pattern)
    if not words:
        return False
    if rule.decision is Decision.ALLOW:
        return _meets(pattern, words, open_end=open_end)
    plain = [words[0].rsplit("/", 1)[-1], *words[1:]]
    return any(_meets(pattern, w, open_end=True) for w in (words, plain))


def _meets(pattern: tuple[re.Pattern[str], ...], words: list[str], *, open_end: bool) -> bool:
    if len(words) < len(pattern) or (len(words) > len(pattern) and not open_end):
        return False
    return all(p.fullmatch(w) for p, w in zip(pattern, words, strict=False))


def _command_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> tuple[tuple[re.Pattern[str], ...], bool]:
    words = pattern_words(pattern)
    open_end = bool(words) and words[-1] == [("*", False)]
    if open_end:
        words = words[:-1]
    return tuple(re.compile(_word_regex(word), re.DOTALL) for word in words), open_end


def pattern_words(pattern: str) -> list[list[tuple[str, bool]]]:
    """The words of a pattern as characters, each with whether it was quoted."""
    words: list[list[tuple[str, bool]]] = []
    word: list[tuple[str, bool]] | None = None
    quote, index = "", 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == quote:
            quote = ""
        elif quote == "'":
            word = [*(word or []), (char, True)]
        elif char == "\\" and index < len(pattern):
            word = [*(word or []), (pattern[index], True)]
            index += 1
        elif quote:
            word = [*(word or []), (char, True)]
        elif char in "'\"":
            quote, word = char, word or []
        elif char.isspace():
            if word is not None:
                words.append(word)
            word = None
        else:
            word = [*(word or []), (char, False)]
    return [*words, word] if word is not None else words


def _word_regex(word: list[tuple[str, bool]]) -> str:
    wild = {"*": ".*", "?": "."}
    return "".join(wild[c] if not quoted and c in wild else re.escape(c) for c, quoted in word)
