"""A model of rules that allow prefixes of commands, as Claude Code's documentation describes them.

https://code.claude.com/docs/en/permissions: each simple command of a line needs a rule of its own
(`PREFIX *`), "don't ask again" saves one for each, at most five. A built-in set of reading commands
and `cd` inside of the directory need none; with patterns of names, `find`, `sort`, `sed` and `git`
do. `cd` beside `git` always asks, and so do `find -exec` and `-delete`, unless the line is known.
Wrappers such as `timeout` do not count. A redirection into a file is an edit, which "don't ask
again" allows until the session ends. Where the page is silent, the model asks less: loops,
substitutions and heredocs do not ask by themselves, and a rule names the program and, of programs
with subcommands, one more word.
"""

import re

_WORDS = """
reading: : [ awk basename cat cd cut date diff dirname du echo egrep false fgrep file find grep
reading: head hostname id ls nl od printf pwd readlink realpath seq sleep sort stat strings tac
reading: tail test tr true type uname uniq wc which
git: blame branch diff grep log ls-files reflog rev-parse show status
wrapper: timeout time nice nohup stdbuf
opening: do then else elif if while until { } ! done fi esac
subcommands: git npm go pip cargo make python python3 node sh bash
acting: -exec -execdir -ok -delete -fprint
"""


def _words(kind: str) -> frozenset[str]:
    lines = [line.split(": ", 1) for line in _WORDS.strip().splitlines()]
    return frozenset(word for name, words in lines if name == kind for word in words.split())


_READING, _READING_GIT = _words("reading"), _words("git")
_WRAPPERS, _OPENING = _words("wrapper"), _words("opening")
_WITH_SUBCOMMANDS, _ACTING_FIND = _words("subcommands"), _words("acting")
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""
_TOKEN = re.compile(rf"""(?:{_QUOTED}|[^\s;&|<>()'"\\])+|[;&|<>()]+""")
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?(.*)\n(?:.*\n)*?\1[ \t]*(?=\n|$)")
_MAX_SAVED = 5


class PrefixRules:
    """The rules of one session; `stored` are those of the sessions before it, and get its own."""

    def __init__(self, stored: set[str]) -> None:
        self._rules = stored
        self._allows_edits = False

    def asks(self, line: str) -> bool:
        """Whether the line is asked about; the answer "don't ask again" adds its rules."""
        parts, writes_file = _parts(line)
        programs = [part[0] for part in parts]
        asks = "cd" in programs and "git" in programs
        missing = [need for part in parts if (need := _needed(part)) and need not in self._rules]
        if not (asks or missing or (writes_file and not self._allows_edits)):
            return False
        self._rules.update(missing[:_MAX_SAVED])
        self._allows_edits |= writes_file
        return True


def _parts(line: str) -> tuple[list[list[str]], bool]:
    """The simple commands of a line without redirections, and whether it writes into a file."""
    text = _HEREDOC.sub(r"\2", line).replace("\n", " ; ").replace("$(", " ; ")
    parts, writes_file, part = list[list[str]](), False, list[str]()
    tokens = iter([*_TOKEN.findall(text), ";"])
    for token in tokens:
        if set(token) <= set("<>&|") and set(token) & set("<>"):
            target = next(tokens)
            writes_file |= ">" in token and target != "/dev/null" and not token.endswith("&")
            if part and part[-1].isdigit():
                part.pop()
        elif set(token) <= set(";&|()"):
            parts.append(_simple(part))
            part = []
        else:
            part.append(token)
    return [words for words in parts if words], writes_file


def _simple(words: list[str]) -> list[str]:
    """The words of a command without keywords, variables and wrappers before it."""
    rest = words
    while rest and (rest[0] in _OPENING or re.match(r"\w+=", rest[0])):
        rest = rest[1:]
    if rest and rest[0] == "for":
        return []
    if rest and rest[0] in _WRAPPERS:
        rest = rest[1:]
        while rest and (rest[0].startswith("-") or rest[0].isdigit()):
            rest = rest[1:]
    is_bare_xargs = rest[:1] == ["xargs"] and not rest[1:2][0].startswith("-")
    return rest[1:] if is_bare_xargs else rest


def _needed(words: list[str]) -> str:
    """The prefix that a rule must allow; "" if the command needs none."""
    if not words:
        return ""
    program, *arguments = words
    first = arguments[0] if arguments else ""
    has_pattern = any(set("*?[") & set(re.sub(_QUOTED, "", word)) for word in arguments)
    is_reading = program in _READING or _is_reading_sed(words) or _is_reading_git(words)
    if program == "find" and _ACTING_FIND & set(arguments):
        return " ".join(words)  # no prefix covers it
    if is_reading and not (has_pattern and program in ("find", "sort", "sed", "git")):
        return ""
    name = program.rsplit("/", 1)[-1]
    return f"{program} {first}" if name in _WITH_SUBCOMMANDS else program


def _is_reading_sed(words: list[str]) -> bool:
    return words[0] == "sed" and not any(word.startswith("-i") for word in words)


def _is_reading_git(words: list[str]) -> bool:
    if words[0] != "git" or len(words) < 2:
        return False
    if words[1] == "branch":
        return "-d" not in words
    return words[1] in _READING_GIT or words[1:3] == ["stash", "list"]
