"""Matches rules with accesses."""

import os
import re
import shlex
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct, structs

from shepherd.tools.access import OPENS_SANDBOX, Access, AccessKind, EffectAccess
from shepherd.tools.paths import expand_braces, glob_regex, has_magic, has_open_braces
from shepherd.tools.permissions.rules import EFFECT_PATTERN, Decision, Rule


def applies_to(rule: Rule, tool: str, kind: AccessKind, cwd: Path) -> bool:
    """Whether a rule is about this tool or kind of access, and holds in `cwd`.

    A rule that opens the sandbox names the kind: `allow execute_command *` opens nothing.
    """
    if rule.scope and not cwd.is_relative_to(rule.scope):
        return False
    if kind in OPENS_SANDBOX and rule.decision is Decision.ALLOW:
        return rule.tool == kind.value
    return rule.tool == kind.value or fnmatchcase(tool, rule.tool)


def pattern_matches(rule: Rule, access: Access, cwd: Path) -> bool:
    """Whether the rule's pattern matches the target of the access."""
    match access.kind:
        case AccessKind.READ | AccessKind.WRITE:
            return path_regex(rule, cwd).fullmatch(access.target) is not None
        case AccessKind.SHELL | AccessKind.SHELL_NETWORK | AccessKind.UNSANDBOXED:
            return command_matches(rule, access.target, wildcards=access.wildcards)
        case AccessKind.NETWORK:
            return host_matches(rule.pattern, access.target)
        case AccessKind.ENVIRONMENT:
            return fnmatchcase(access.target.upper(), rule.pattern.upper())
        case AccessKind.TOOL | AccessKind.MCP | AccessKind.MEMORY | AccessKind.PROCESS:
            return fnmatchcase(access.target, rule.pattern)
        case AccessKind.EFFECT:
            return effect_matches(rule, access, cwd)
        case AccessKind.REPOSITORY | AccessKind.PLAN | AccessKind.HOOK | AccessKind.NONE:
            return True


def path_regex(rule: Rule, cwd: Path) -> re.Pattern[str]:
    """The regular expression of the paths that a rule covers.

    `{cwd}/` and relative globs start in the working directory, `~/` in the home directory. Rules
    that do not allow ignore case, as some file systems do. If a glob has too many alternatives, a
    rule that allows matches nothing; other rules match everything.
    """
    home = _real_home(os.environ.get("HOME", ""))
    ignore_case = rule.decision is not Decision.ALLOW
    return _path_regex(rule.pattern, str(cwd), home, ignore_case=ignore_case)


@lru_cache(maxsize=8)
def _real_home(_home: str) -> str:
    """The home directory without links; the argument, HOME, only keys the cache."""
    return os.path.realpath(Path("~").expanduser())


@lru_cache(maxsize=2048)
def _path_regex(pattern: str, cwd: str, home: str, *, ignore_case: bool) -> re.Pattern[str]:
    """`path_regex` in the directories that the pattern is relative to, compiled once."""
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    if has_open_braces(pattern):  # too many alternatives; only rules that allow heed the case
        return re.compile(".*" if ignore_case else "(?!)", flags)
    for prefix, base in (("{cwd}", cwd), ("~", home)):
        if pattern == prefix:
            return re.compile(re.escape(base), flags)
        if pattern.startswith(prefix + "/"):
            return re.compile(_below(base, pattern[len(prefix) + 1 :]), flags)
    if pattern.startswith("/"):
        return re.compile(glob_regex(pattern), flags)
    return re.compile(_below(cwd, pattern.removeprefix("./")), flags)


def _below(base: str, pattern: str) -> str:
    """The expression of a glob below a directory; `**` also covers the directory itself."""
    head = re.escape(base.rstrip("/"))
    if pattern == "**":
        return head + "(?:/.*)?"
    return f"{head}/(?:{glob_regex(pattern)})"


def effect_matches(rule: Rule, access: Access, cwd: Path) -> bool:
    """Whether `write src/**`, `delete untracked` or `any below 20 files` is about a change."""
    if rule.pattern == "*":
        return True
    pattern, what = EFFECT_PATTERN.fullmatch(rule.pattern), access.target.partition(" ")
    if pattern is None or pattern["deed"] not in ("any", what[0]):
        return False
    if pattern["path"] is not None:
        named = structs.replace(rule, pattern=pattern["path"])
        return path_regex(named, cwd).fullmatch(what[2]) is not None
    if not isinstance(access, EffectAccess):
        return False
    return access.files < int(pattern["files"]) if pattern["files"] else access.untracked


def host_matches(pattern: str, url: str) -> bool:
    """Whether `host`, `*.host` or `host:port` matches the URL."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port  # `a.org.` is `a.org`
    except ValueError:  # not a URL
        return False
    pattern_host, pattern_port = _split_port(pattern.lower())
    default = {"http": 80, "https": 443}.get(parts.scheme)
    if pattern_port and int(pattern_port) != (port or default):
        return False
    return fnmatchcase(host, pattern_host.strip("[]"))


def _split_port(pattern: str) -> tuple[str, str]:
    """`example.com:8443` as host and port, "" without one; `::1` is all host, `[::1]:80` not."""
    host, _, port = pattern.rpartition(":")
    is_host = bool(host) and (":" not in host or host.endswith("]"))
    return (host, port) if is_host and port.isdigit() else (pattern, "")


_READ_BY_SHELL = frozenset("*?[]~!^{}$`")
_LIVE = 0xDC00
"""A character with a meaning for the shell is matched as a surrogate, which no command contains."""

Word = list[tuple[str, bool]]


def command_matches(rule: Rule, command: str, *, wildcards: bool = False) -> bool:
    """Whether the rule's pattern matches `command` (in shell quoting).

    A rule that allows must match the whole command as it is written, with wildcards only if
    `wildcards` permits them. A rule that asks or denies also matches longer commands, the program
    in any directory, and any quoting.
    """
    if rule.decision is Decision.ALLOW:
        pattern = _compile(rule.pattern, as_read=True)
        is_permitted = wildcards or not pattern.has_wildcards
        return is_permitted and pattern.meets(_words_as_read(command))
    words = _plain_words(command)
    if not words:
        return False
    without_directory = [words[0].rsplit("/", 1)[-1], *words[1:]]
    pattern = _compile(rule.pattern, as_read=False)
    return pattern.begins(words) or pattern.begins(without_directory)


def exact_pattern(command: str) -> str:
    """The pattern that matches `command` (in canonical quoting) and no other."""
    return " ".join(_exact_word(word) for word in pattern_words(command))


class _Pattern(Struct, frozen=True):
    """The words of a pattern; with `open_end` any number of words may follow."""

    words: tuple[re.Pattern[str], ...]
    open_end: bool
    has_wildcards: bool

    def meets(self, words: list[str]) -> bool:
        """Whether the pattern matches exactly these words."""
        return bool(words) and self.begins(words) and (self.open_end or len(words) == self.length)

    def begins(self, words: list[str]) -> bool:
        """Whether the pattern matches the first of these words."""
        if len(words) < self.length:
            return False
        return all(p.fullmatch(w) for p, w in zip(self.words, words, strict=False))

    @property
    def length(self) -> int:
        """The number of words, without a last `*`."""
        return len(self.words)


def _plain_words(command: str) -> list[str]:
    """The words without their quotes; those of an unfinished quotation are split at spaces."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


@lru_cache(maxsize=1024)
def _compile(pattern: str, *, as_read: bool) -> _Pattern:
    """The pattern of a rule; with `as_read` a `*` of the shell differs from a quoted one."""
    words = pattern_words(pattern)
    # a last `*` stands for any number of further words, also for none
    open_end = bool(words) and words[-1] == [("*", False)]
    has_wildcards = any(_WILDCARD.search(_outline(word)) for word in words)
    if open_end:
        words = words[:-1]
    regexes = (re.compile(_word_regex(word, as_read=as_read), re.DOTALL) for word in words)
    return _Pattern(tuple(regexes), open_end, has_wildcards)


_WILDCARD = re.compile(r"(?<!<)[*?]|[*?](?!>)")


def _outline(word: Word) -> str:
    """The word with a `q` for each quoted character, so that only live wildcards are seen."""
    return "".join("q" if quoted else char for char, quoted in word)


def pattern_words(pattern: str) -> list[Word]:
    """The words of a pattern as characters, each with a flag: whether it was quoted."""
    words: list[Word] = []
    word: Word | None = None
    quote, index = "", 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == quote:
            quote = ""
        elif quote == "'":  # not even a backslash has a meaning there
            word = _add(word, char, quoted=True)
        elif char == "\\" and index < len(pattern):
            word = _add(word, pattern[index], quoted=True)
            index += 1
        elif quote:
            word = _add(word, char, quoted=True)
        elif char in "'\"":
            quote, word = char, word or []  # `''` is a word, too
        elif char.isspace():
            if word is not None:
                words.append(word)
            word = None
        else:
            word = _add(word, char, quoted=False)
    return [*words, word] if word is not None else words


def _add(word: Word | None, char: str, *, quoted: bool) -> Word:
    """Append a character to the word in place, because words may be very long."""
    grown = [] if word is None else word
    grown.append((char, quoted))
    return grown


def _is_read(word: Word) -> list[bool]:
    """For each character, whether the shell gives it a meaning; beside brackets, all but letters.

    `-` and `!`, say, mean something in `[a-z]` and in `[!a]`.
    """
    bracket = ("[", False) in word
    return [
        not quoted and (char in _READ_BY_SHELL or (bracket and not char.isalnum()))
        for char, quoted in word
    ]


@lru_cache(maxsize=16)
def _words_as_read(command: str) -> list[str]:
    """The words of a command; each of a policy's rules is compared with the same ones."""
    return [_as_read(word) for word in pattern_words(command)]


def _as_read(word: Word) -> str:
    """The word with marks in place of the characters that mean something to the shell."""
    live = _is_read(word)
    return "".join(
        _mark(char) if read else char for (char, _), read in zip(word, live, strict=True)
    )


def _mark(char: str) -> str:
    """A character that means something to the shell, so that it differs from a quoted one."""
    return chr(_LIVE + ord(char)) if char.isascii() else char


def _word_regex(word: Word, *, as_read: bool) -> str:
    """The expression of one word: `*` is any text, and `<*>` is a `*` of the command itself."""
    regex, index = "", 0
    live = _is_read(word)
    outline = _outline(word)
    wild = {"*": ".*", "?": "."}
    while index < len(word):
        char = word[index][0]
        if outline[index : index + 3] in ("<*>", "<?>"):  # as `_exact_word` writes it
            char = outline[index + 1]
            regex += re.escape(_mark(char) if as_read else char)
            index += 3
            continue
        if outline[index] in wild:
            regex += wild[char]
        else:
            regex += re.escape(_mark(char) if live[index] and as_read else char)
        index += 1
    return regex


def _exact_word(word: Word) -> str:
    """The word as a pattern of its own: quoted text in quotes, and live `*` as `<*>`."""
    parts: list[str] = []
    for quoted, run in groupby(word, key=lambda pair: pair[1]):
        text = "".join(char for char, _ in run)
        parts.append(shlex.quote(text) if quoted else re.sub(r"[*?]", r"<\g<0>>", text))
    return "".join(parts) or "''"


_ANYWHERE = ("/**/", "{cwd}/**/", "~/**/")

_Relevant: TypeAlias = dict[tuple[str, AccessKind], Callable[[str], list[Rule]]]


class PathIndex:
    """Rules indexed by a name in every path that they match; the others share one expression."""

    def __init__(self, rules: tuple[Rule, ...], cwd: Path) -> None:
        self._rules = rules
        # the places in `rules` of those with a name, and of those that need none
        self._named: dict[str, set[int]] = {}
        self._unnamed: list[int] = []
        for number, rule in enumerate(rules):
            keys = _keys(rule.pattern)
            if None in keys:
                self._unnamed.append(number)
            for key in filter(None, keys):
                self._named.setdefault(key, set()).add(number)
        self._any_unnamed = _any_regex([rules[number] for number in self._unnamed], cwd)

    def candidates(self, path: str) -> list[Rule]:
        """The rules that may match the path, in their order."""
        names = path.casefold().split("/")
        numbers: set[int] = set()
        for key in (*names, *_endings(names[-1])):
            numbers |= self._named.get(key, set())
        if self._any_unnamed.fullmatch(path):  # one of them matches: which one, the caller finds
            numbers.update(self._unnamed)
        return [self._rules[number] for number in sorted(numbers)]


@lru_cache(maxsize=64)
def _path_index(rules: tuple[Rule, ...], cwd: Path, _home: str) -> PathIndex:
    """The index of the rules; all tools that the same rules apply to share it."""
    return PathIndex(rules, cwd)


@lru_cache(maxsize=2048)
def _keys(pattern: str) -> frozenset[str | None]:
    """The names of which each path of the pattern contains one; None if some paths need none."""
    return frozenset(_key(tail) for tail in _relative_patterns(pattern))


def _relative_patterns(pattern: str) -> list[str]:
    """`.env` for `/**/.env`; a pattern that starts at a fixed place is `*`, which has no name."""
    for prefix in _ANYWHERE:
        if pattern.startswith(prefix) and not has_open_braces(pattern):
            return expand_braces(pattern.removeprefix(prefix))
    return ["*"]


def _key(tail: str) -> str | None:
    """What each path of the glob contains: a name, or an ending of the last name; else None.

    `.ssh` for `.ssh/**`, and `*.pem` for `*.pem`.
    """
    first, *more = tail.split("/")
    if first and not has_magic(first):
        return first.casefold()
    if more:
        return None
    ending = first.removeprefix("*")
    plain = first.startswith("*.") and not has_magic(ending) and "{" not in ending
    return f"*{ending.casefold()}" if plain else None


def _endings(name: str) -> list[str]:
    """`a.tar.gz` as `*.tar.gz` and `*.gz`."""
    parts = name.split(".")
    return ["*." + ".".join(parts[start:]) for start in range(1, len(parts))]


def _any_regex(rules: list[Rule], cwd: Path) -> re.Pattern[str]:
    """An expression for all paths of the rules; names in any directory share one search."""
    names: list[str] = []
    patterns: list[str] = []
    for rule in rules:
        name = rule.pattern.removeprefix("/**/")
        is_name_anywhere = name != rule.pattern and "/" not in name
        if is_name_anywhere and not has_open_braces(name):
            names.append(glob_regex(name))
        else:
            patterns.append(path_regex(rule, cwd).pattern)
    if names:  # an atomic group: only the last name of a path is compared with them
        patterns.append(f"(?>.*/)(?:{'|'.join(names)})")
    either = "|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)"
    return re.compile(either, re.DOTALL | re.IGNORECASE)


class RuleLayer:
    """Rules of equal trust in one working directory; the last match wins.

    A rule may be added while another thread looks one up; the result of that lookup is not cached.
    """

    def __init__(self, rules: Iterable[Rule], cwd: Path) -> None:
        self.rules = [*rules]
        self._cwd = cwd
        # for each tool and kind of access, what finds the rules about a target
        self._relevant: _Relevant = {}

    def add(self, rule: Rule) -> None:
        """Append a rule."""
        self.rules = [*self.rules, rule]
        self._relevant = {}

    def extended(self, rules: Iterable[Rule]) -> "RuleLayer":
        """A copy with more rules."""
        return RuleLayer([*self.rules, *rules], self._cwd)

    def last(self, tool: str, access: Access) -> Rule | None:
        """The last rule that matches the access."""
        key = (tool, access.kind)
        relevant = self._relevant  # read before the rules, which replace it
        candidates = relevant.get(key)
        if candidates is None:
            candidates = relevant[key] = self._find_relevant(tool, access.kind)
        for rule in candidates(access.target):
            if pattern_matches(rule, access, self._cwd):
                return rule
        return None

    def _find_relevant(self, tool: str, kind: AccessKind) -> Callable[[str], list[Rule]]:
        """A function that returns the rules that may match a target, the last rule first."""
        rules = [r for r in reversed(self.rules) if applies_to(r, tool, kind, self._cwd)]
        if kind in (AccessKind.READ, AccessKind.WRITE):
            is_fixed = all(rule.pattern.startswith(("/", "~/")) for rule in rules)
            cwd = Path("/") if is_fixed else self._cwd  # then all directories share one index
            return _path_index(tuple(rules), cwd, os.environ.get("HOME", "")).candidates
        return lambda _target: rules
