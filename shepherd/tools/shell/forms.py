"""The known forms of commands that only read; all others need a box, or a rule for all words.

What a program does depends on its options and on files of the project, so a list of dangerous
ones would be wrong with the next version. These are known to write no file, to run no program,
and to read no files but their operands. Those that list directories follow no links.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from shepherd.tools.shell.git import files_of_git

_SPEAKING_NAMES = """
: basename cd dirname echo exit expr factor false groups id nproc printf pwd seq sleep tr true type
uname wait which whoami
"""
_READING_NAMES = """
[ cat cmp comm df head nl paste readlink realpath rev stat tac tail test
"""
_SPEAKING, _READING = frozenset(_SPEAKING_NAMES.split()), frozenset(_READING_NAMES.split())
"""Programs with harmless options only; the operands of the first are no files."""

_FORMS = """
cut: -nsz -bcdf bytes characters complement delimiter fields only-delimited output-delimiter
date: -uRI -d date iso-8601 rfc-3339 rfc-email universal utc
diff: -abBcdeEinNpqstTuvwWyZ -CFIUL brief context color ignore-all-space ignore-blank-lines
  ignore-case ignore-space-change new-file report-identical-files side-by-side unified
du: -0abchklmPsSx -Bdt all apparent-size bytes human-readable max-depth one-file-system
  separate-dirs summarize threshold total
egrep: GREP
fgrep: GREP
file: -0bcEhikLNnprsv -F brief dereference mime mime-encoding mime-type no-dereference
grep: GREP
ls: -1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ - all almost-all classify color directory full-time
  group-directories-first human-readable inode recursive reverse size sort time time-style
sort: -bdfgiMhnRrVcCmsuz -kt check dictionary-order field-separator general-numeric-sort
  human-numeric-sort ignore-case ignore-leading-blanks key merge month-sort numeric-sort reverse
  stable unique version-sort zero-terminated
tree: -adfiFnNpsSDhCrtuUvx -ILP dirsfirst du gitignore noreport prune
uniq: -cdDiuz -fsw all-repeated count ignore-case repeated skip-chars skip-fields unique
wc: -cmlLw - bytes chars lines max-line-length words
"""
_GREP = """
-abcEFGhHiIlLnoPqsTUuvVwxyZz0123456789 -ABCem after-context basic-regexp before-context binary
binary-files byte-offset color colour context count extended-regexp files-with-matches
files-without-match fixed-strings ignore-case initial-tab invert-match label line-buffered
line-number line-regexp max-count no-filename no-ignore-case no-messages null null-data
only-matching perl-regexp quiet regexp silent text with-filename word-regexp
"""
"""Short options, short options that always have a value, and long options."""

_TESTS = """
-P -a -amin -and -atime -cmin -ctime -d -daystart -depth -empty -executable -false
-gid -group -iname -inum -ipath -iregex -links -ls -maxdepth -mindepth -mmin -mount -mtime -name
-newer -newermt -nogroup -not -nouser -o -or -path -perm -print -print0 -printf -prune -quit
-readable -regex -regextype -size -true -type -uid -user -wholename -writable -xdev -xtype
"""
_FIND_TESTS = frozenset(_TESTS.split())

_EVALUATING = frozenset({"test", "[", "printf", "wait", "exit"})
"""Some shells evaluate an operand of these: `test -v 'x[$(date)]'` runs `date` in bash."""

_EVALUATED = re.compile(r"-[vRp]|.*(?:\$\(|`)", re.DOTALL)


class _Options(Struct, frozen=True):
    """Known options: short flags, short options with a value, long options."""

    flags: str
    values: str
    longs: frozenset[str]

    def operands(self, arguments: Sequence[str]) -> list[str] | None:
        """The words that are no options; None if an option is not known.

        The value that follows a long option counts as an operand.
        """
        operands: list[str] = []
        words = iter(arguments)
        for word in words:
            if word == "--":
                return [*operands, *words]
            if not word.startswith("-") or word == "-":
                operands.append(word)
            elif word.startswith("--"):  # in full, because each version has its own abbreviations
                if word[2:].partition("=")[0] not in self.longs:
                    return None
            # some programs take options before operands only, so that a value may be a file
            elif not self._knows(word, iter(()) if operands else words):
                return None
        return operands

    def _knows(self, cluster: str, following: Iterator[str]) -> bool:
        """Whether each short option is known; the value of the last one may be the next word."""
        for index, char in enumerate(cluster[1:], 2):
            if char in self.values:
                if index == len(cluster):
                    next(following, "")
                return True
            if char not in self.flags:
                return False
        return True


def files_read(words: Sequence[str]) -> list[str] | None:
    """The words that may name files which the command reads; None if its form is not known."""
    program, arguments = words[0], words[1:]
    if program == "git":
        return files_of_git(arguments)
    if program == "find":
        return _starts_of_find(arguments)
    if program == "command":  # with these it only looks for a program
        return [] if arguments[:1] in (["-v"], ["-V"]) else None
    if program in _EVALUATING and any(map(_EVALUATED.match, arguments)):
        return None
    options = _forms().get(program)
    if options is not None:
        return _operands(program, options, arguments)
    if program in _SPEAKING:
        return []
    has_end = "--" in arguments  # behind it, a file may have the name of an option
    files = [word for word in arguments if has_end or not word.startswith("-")]
    return files if program in _READING else None


def _operands(program: str, options: _Options, arguments: Sequence[str]) -> list[str] | None:
    """The files that a program of the table reads; None if it does more with these words."""
    operands = options.operands(arguments)
    if operands is None or (program == "uniq" and len(operands) > 1):
        return None  # `uniq` writes to its second operand
    if program == "date":  # it sets the clock, unless the operand is a format
        return [] if all(word.startswith("+") for word in operands) else None
    # an option with the pattern; otherwise it is the first operand
    if program.endswith("grep") and not any(re.match(r"-\w*e|--reg", word) for word in arguments):
        return operands[1:]
    return operands


def reads_below(words: Sequence[str], paths: Sequence[Path]) -> bool:
    """Whether a reading form that reads these paths reads the files of a directory."""
    if words[0] == "diff":
        return any(path.is_dir() for path in paths)
    # outside of a repository, `git diff a b` compares any two files or directories
    compares = words[0] == "git" and "diff" in words[1:3] and len({*paths}) > 1
    return compares and any(p.is_dir() for p in paths) and all(p.exists() for p in paths)


@lru_cache(maxsize=1)
def _forms() -> dict[str, _Options]:
    """The options of each program; an entry of the table goes on in lines with an indentation."""
    entries = _FORMS.replace("\n  ", " ").replace("GREP", _GREP.replace("\n", " "))
    named = (entry.partition(": ") for entry in entries.strip().split("\n"))
    forms: dict[str, _Options] = {}
    for name, _, text in named:
        flags, values, *longs = text.split()
        forms[name] = _Options(flags[1:], values[1:], frozenset(longs))
    return forms


def _starts_of_find(arguments: Sequence[str]) -> list[str] | None:
    """Where `find` begins, if it only tells names; it can delete, write and run programs, too."""
    if not all(word in _FIND_TESTS for word in arguments if word.startswith("-")):
        return None
    starts: list[str] = []
    for word in arguments:
        if word[:1] in ("-", "(", "!") and word != "-P":
            break
        starts.append(word)
    return starts
