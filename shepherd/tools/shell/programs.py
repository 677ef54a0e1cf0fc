"""The programs for whose words a wildcard of a rule may stand: those that only read.

Of these programs the forms are known. What any other program does depends on its options and on
files of the project, so a rule must name all of its words, or the sandbox has to hold it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from shepherd.tools import access, paths
from shepherd.tools.shell.git import only_reads

_ANY_FORM = """
: [ b2sum basename cat cd chmod cksum cmp comm command cp df dirname echo exit expr factor false
groups head id kill ls md5sum mkdir mv nl nproc paste printf pwd readlink realpath rev rm rmdir
seq sha1sum sha224sum sha256sum sha384sum sha512sum sleep stat sum tac tail test touch tr true
type uname wait which whoami
"""
_KNOWN = frozenset(_ANY_FORM.split())
"""None of their options runs a program, or writes a file that the words do not show."""

_FORMS = """
column: -tnx -sco
cut: -nsz -bcdf bytes characters complement delimiter fields only-delimited output-delimiter
date: -uR -dI date iso-8601 rfc-3339 rfc-email universal utc
diff: -abBcdeEinNpqrstTuvwWyZ -CFIULx brief context color ignore-all-space ignore-blank-lines
  ignore-case ignore-space-change new-file recursive report-identical-files side-by-side unified
du: -0abcDhHklLmPsSx -Bdt all apparent-size bytes dereference exclude human-readable max-depth
  one-file-system separate-dirs summarize threshold total
egrep: GREP
fgrep: GREP
file: -0bcEhikLNnprsSvz -F brief dereference mime mime-encoding mime-type no-dereference
fold: -bcs -w
grep: GREP
join: -i -12aejotv
od: -abcdfhilosvx -AjNStw
rg: -abcFhHiIlLnNopPsSUvVwxu.0 -ABCdegmMrtT after-context before-context case-sensitive color
  colors column context count count-matches crlf fixed-strings files files-with-matches
  files-without-match glob heading hidden iglob ignore-case invert-match json line-number
  line-regexp max-columns max-count max-depth multiline no-filename no-heading no-ignore
  no-ignore-vcs no-line-number no-messages null only-matching pcre2 pretty quiet regexp replace
  smart-case sort sortr stats text trim type type-list type-not unrestricted vimgrep with-filename
  word-regexp
sort: -bdfgiMhnRrVcCmsuz -kt check dictionary-order field-separator general-numeric-sort
  human-numeric-sort ignore-case ignore-leading-blanks key merge month-sort numeric-sort reverse
  stable unique version-sort zero-terminated
tree: -adfiFlnNpsSDhCrtuUvx -ILP dirsfirst du gitignore noreport prune
uniq: -cdDiuz -fsw all-repeated count ignore-case repeated skip-chars skip-fields unique
wc: -cmlLw - bytes chars lines max-line-length words
"""
_GREP = """
-abcEFGhHiIlLnoPqRrsTUuvVwxyZz0123456789 -ABCemdD after-context basic-regexp before-context binary
binary-files byte-offset color colour context count dereference-recursive devices directories
exclude exclude-dir extended-regexp files-with-matches files-without-match fixed-strings
ignore-case include initial-tab invert-match label line-buffered line-number line-regexp max-count
no-filename no-ignore-case no-messages null null-data only-matching perl-regexp quiet recursive
regexp silent text with-filename word-regexp
"""
"""Short options, short options with a value (`#` is a number), and long options."""

_TESTS = """
-H -L -P -a -amin -anewer -and -atime -cmin -cnewer -ctime -d -daystart -depth -empty -executable
-false -follow -gid -group -iname -inum -ipath -iregex -links -ls -maxdepth -mindepth -mmin -mount
-mtime -name -newer -newermt -nogroup -not -nouser -o -or -path -perm -print -print0 -printf -prune
-quit -readable -regex -regextype -samefile -size -true -type -uid -user -wholename -writable -xdev
-xtype
"""
_FIND_TESTS = frozenset(_TESTS.split())

_PREFIX_NAMES = """
env nice ionice timeout sudo doas stdbuf nohup setsid chrt watch strace flock taskset
"""
_PREFIXES = frozenset(_PREFIX_NAMES.split())
_GREPS = frozenset({"grep", "egrep", "fgrep", "zgrep", "ugrep", "ggrep"})
_SEARCHERS = frozenset({"rg", "ag", "ack"})
_INDIRECT = frozenset({"xargs", "parallel", "cpio", "pax"})
_SHOWS_HIDDEN = re.compile(
    r"--hidden|--no-ignore.*|--unrestricted|-[a-zA-Z]*[.u].*|-g.*|--i?glob.*|-a|--all.*"
    r"|--ignore-file.*"
)
_QUIET = """
ls cd pwd mkdir rmdir rm mv ln chmod chown touch stat du df test [ echo printf basename dirname
realpath readlink tree which type exit true false pushd popd make cmake ninja meson cargo rustc
go gofmt npm npx pnpm yarn bun node deno python python3 pip pip3 uv poetry tox nox pytest ruff
mypy pyright black isort flake8 pylint eslint prettier tsc jest vitest mocha mvn gradle java
javac dotnet swift ruby bundle rake rspec php composer phpunit perl prove cabal stack mix ctest
sbt scala kotlinc zig nim dart flutter terraform helm kubectl pre-commit coverage shellcheck
shfmt actionlint hadolint cc gcc clang ld install unzip gunzip docker-compose sphinx-build mkdocs

"""
_READS_NOTHING = frozenset(_QUIET.split())
"""Programs with directory arguments that do not show the content of files in them."""

_COPIERS = frozenset({"cp", "scp"})
_RECURSIVE = re.compile(r"-[a-zA-Z]*[rRa]|--recursive|--archive|--dereference-recursive")


class Options(Struct, frozen=True):
    """Known options: short flags, short options with a value, long options."""

    flags: str
    values: str
    longs: frozenset[str]

    @classmethod
    def parse(cls, words: Sequence[str]) -> "Options":
        """Read `-FLAGS -VALUES LONG…`."""
        flags, values, *longs = words
        return cls(flags[1:], values[1:], frozenset(longs))

    def knows(self, option: str) -> bool:
        """Whether the option, or each of a cluster, is known; a long one must be in full."""
        if option.startswith("--"):
            return option[2:].partition("=")[0] in self.longs
        for char in option[1:]:
            if char in self.values:
                return True  # what follows is its value
            if char not in self.flags and not (char.isdigit() and "#" in self.flags):
                return False
        return True


def words_to_name(words: Sequence[str]) -> int:
    """The number of a command's words that a rule must name; no wildcard may stand for them."""
    is_known = only_reads(words) if words[0] == "git" else is_known_form(words)
    return 0 if is_known else len(words)


def is_known_form(words: Sequence[str]) -> bool:
    """Whether the command does no more than its words show; it runs no other program."""
    program, arguments = words[0], words[1:]
    if program in _KNOWN:
        return True
    if program == "find":  # beside its tests, it has options that delete, write or run programs
        return all(word in _FIND_TESTS for word in arguments if word.startswith("-"))
    options = _forms().get(program)
    if options is None:
        return False
    operands = [word for word in arguments if not word.startswith("-") or word == "-"]
    if program == "uniq" and len(operands) > 1:
        return False  # it writes to its second operand
    if program == "date" and not all(word.startswith("+") for word in operands):
        return False  # it sets the clock
    return all(map(options.knows, set(arguments).difference(operands, {"--"})))


@lru_cache(maxsize=1)
def _forms() -> dict[str, Options]:
    """The options of each program; an entry of the table goes on in lines with an indentation."""
    entries = _FORMS.replace("\n  ", " ").replace("GREP", _GREP.replace("\n", " "))
    named = (entry.partition(": ") for entry in entries.strip().split("\n"))
    return {name: Options.parse(text.split()) for name, _, text in named}


def trees(words: Sequence[str], place: Path) -> Iterator[tuple[Path, access.Claim]]:
    """The directories of which a command may read all files, each with the claim on those files."""
    program = name_of(words[0])
    if program in _READS_NOTHING:
        return
    inner = _inner_words(words)
    if program == "git":
        yield from _git_trees(words, place)
    elif program in _PREFIXES and inner:
        yield from trees(inner, place)
    elif program in _PREFIXES:  # what it runs is not clear, so it may read all
        yield place, access.Claim.TREE
    elif program in _INDIRECT:  # their files come from the input
        if program != "xargs" or not inner or name_of(inner[0]) not in _READS_NOTHING:
            yield place, access.Claim.TREE
    else:
        yield from _argument_trees(program, words, place)


def name_of(program: str) -> str:
    """The name of a program without its directory."""
    return program.rpartition("/")[2]


def _inner_words(words: Sequence[str]) -> Sequence[str]:
    """The command in `env X=1 nice -5 cat a`: `cat a`; none if a word holds a line (`env -S`)."""
    for index, word in enumerate(words[1:], 1):
        if " " in word:
            break
        # options, settings, and numbers such as the seconds of `timeout`
        if not word.startswith("-") and "=" not in word and not word[:1].isdigit():
            return words[index:]
    return []


def _argument_trees(
    program: str, words: Sequence[str], place: Path
) -> Iterator[tuple[Path, access.Claim]]:
    """The directories that the program reads as a whole; of an unknown one, all that are named."""
    folders = list(_folders(words[1:], place))
    claim = access.Claim.TREE
    if program in _GREPS:
        if not any(_is_recursive_grep(word) for word in words[1:]):
            return
        folders = folders or [place]
    elif program in ("find", "fd"):
        # `-x`, `-X` and `--exec` of fd
        runs_programs = any(re.match(r"-[a-zA-Z]*[xX]|--e", word) for word in words[1:])
        if is_known_form(words) or (program == "fd" and not runs_programs):
            return  # it only prints names
        folders = folders or [place]
    elif program in _SEARCHERS or program == "rgrep":
        shows_hidden = program == "rgrep" or any(map(_SHOWS_HIDDEN.fullmatch, words[1:]))
        claim = access.Claim.TREE if shows_hidden else access.Claim.VISIBLE_TREE
        folders = folders or [place]
    elif program in _COPIERS:  # without `-r` they refuse directories
        folders = folders if any(map(_RECURSIVE.match, words[1:])) else []
    elif program in ("tar", "bsdtar", "gtar") and not _is_packing(words):
        return
    yield from ((folder, claim) for folder in folders)


def _git_trees(words: Sequence[str], place: Path) -> Iterator[tuple[Path, access.Claim]]:
    """The whole place if git adds more than files that are named; ignored files need `-f`."""
    if "add" not in words[1:] and "stage" not in words[1:]:
        return
    names = [word for word in words[2:] if not word.startswith("-")]
    adds_all = any(word == "--all" or re.match(r"-[a-zA-Z]*A", word) for word in words)
    has_patterns = any(word[:1] == ":" or any(c in word for c in "*?[") for word in names)
    if adds_all or has_patterns or any(_folders(names, place)):
        is_forced = any(re.match(r"-[a-zA-Z]*f|--f", word) for word in words)
        yield place, access.Claim.TREE if is_forced else access.Claim.UNIGNORED_TREE


def _folders(words: Sequence[str], place: Path) -> Iterator[Path]:
    """The directories among the words, also in `--dir=DIR` and `-dDIR`."""
    for word in words:
        for text in (word, word.partition("=")[2], word[2:] if word[:1] == "-" else ""):
            if not text:
                continue
            path = Path(place, paths.expand_home(text))
            try:
                is_folder = path.is_dir()
            except (OSError, ValueError):
                continue
            if is_folder:
                yield path.resolve()


def _is_recursive_grep(word: str) -> bool:
    """Whether an option of grep reads directories: `-r`, `--recursive` or `-d recurse`."""
    return re.match(r"-[a-zA-Z]*[rR]|--r|--dereference-r|-[a-zA-Z]*d|--dir", word) is not None


def _is_packing(words: Sequence[str]) -> bool:
    """Whether `tar` reads files into an archive: to create, append, update or concatenate."""
    if any(word.startswith(("--c", "--app", "--u", "--a")) for word in words):
        return True
    # the first word may be a cluster without a dash, as in `tar czf`
    clusters = [*words[1:2], *(word for word in words[2:] if re.match(r"-[a-zA-Z]", word))]
    return any(
        re.match(r"-?[a-zA-Z]*[cruA]", word) for word in clusters if not word.startswith("--")
    )


_WRAPPER_NAMES = """
sudo doas su env nice nohup time timeout xargs exec command builtin setsid stdbuf ionice chrt
taskset watch strace ltrace unshare nsenter chroot flock parallel find fd busybox toybox entr
script systemd-run runuser pkexec
"""
_WRAPPERS = frozenset(_WRAPPER_NAMES.split())
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "su"})
_CODE = frozenset({"python", "node", "ruby", "perl", "php", "lua", "deno", "bun", "awk", "gawk"})
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_READS_COMMANDS = frozenset({"ssh", "at", "batch", "ed", "ex", "m4", "dc", "tclsh", "expect"})
_GIVES_PROGRAM = re.compile(r"-[a-hj-rt-zA-Z]*[ecm]|-[uqxBEO]")
"""Options that are followed by the program as the next word."""

_WRITER_NAMES = """
tee dd cp mv rm install ln truncate shred touch unlink rmdir rsync scp patch split csplit
chmod chown chgrp setfacl chattr mkfifo sponge fallocate unzip ed ex vi vim nvim nano emacs
"""
_WRITERS = frozenset(_WRITER_NAMES.split())
_EDITORS = frozenset({"sed", "gsed", "perl", "ruby", "awk", "gawk", "yq", "black", "prettier"})
_EDITS_IN_PLACE = re.compile(r"-[a-zA-Z0-9]*i|--i|--write")

_COMMAND_OPTION = re.compile(r"[-+][A-Za-z]*c[A-Za-z]*")
_SPLIT_OPTION = re.compile(r"-S|--split-string=")
_MAX_WORDS = 500
"""The maximum number of a wrapper's words that are checked as the start of a command."""

_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "-p", "-r", "-E"})


def is_interpreter(program: str) -> bool:
    """Whether the program runs a script or its input."""
    return _program_name(program) in _SHELLS | _CODE


def reads_program(words: Sequence[str]) -> bool:
    """Whether the words start an interpreter that runs its input."""
    if not words:
        return False
    if _program_name(words[0]) in _WRAPPERS:
        return any(is_interpreter(word) for word in words[1:])
    if _program_name(words[0]) in _READS_COMMANDS:
        return True
    if not is_interpreter(words[0]):
        return False
    if _program_name(words[0]) in _AWKS:  # the program is a word, unless an option names its file
        return any(word.startswith(("-f", "--f", "-i", "-E", "-l")) for word in words[1:])
    for word in words[1:]:
        if not word.startswith("-"):
            return word.startswith(("/dev/", "/proc/"))  # a script, or the input under a name
        if not _GIVES_PROGRAM.fullmatch(word):
            return True  # after an unknown option, the next word may be its value
    return True


def runs_code(words: Sequence[str]) -> bool:
    """Whether the words may contain the text of a program, in which file names may be hidden."""
    if any(_program_name(word) in _SHELLS or word == "eval" for word in words):
        return True
    # a program stands behind an option, but awk's is a word of its own
    return any(_program_name(w) in _CODE for w in words) and (
        _program_name(words[0]) in ("awk", "gawk") or any(w[:2] in _CODE_OPTIONS for w in words)
    )


def writes_files(words: Sequence[str]) -> bool:
    """Whether the program, or a program that it runs, changes or removes its file arguments."""
    programs = words if words and _program_name(words[0]) in _WRAPPERS else words[:1]
    # a wrapper may run any of its words; editors write only with an option
    return any(_program_name(word) in _WRITERS for word in programs) or (
        any(_program_name(word) in _EDITORS for word in programs)
        and any(_EDITS_IN_PLACE.match(word) for word in words)
    )


def inner_commands(words: Sequence[str]) -> Iterator[list[str] | str]:
    """The commands that a command may run in turn: words, or a line for a shell.

    Raises OverflowError if it has too many words to check.
    """
    if not words:
        return
    if _program_name(words[0]) in _WRAPPERS:
        if len(words) > _MAX_WORDS:  # the loop reads the words behind each word
            raise OverflowError("too many words")
        for start in range(1, len(words)):  # which word is the program depends on the options
            yield list(words[start:])
            yield from _shell_lines(words[start:])
            if any(char in words[start] for char in " \t\n"):  # `env -S "cat a"` splits it
                yield _SPLIT_OPTION.sub("", words[start])
    if words[0] == "eval":
        yield " ".join(words[1:])
    yield from _shell_lines(words)


def _shell_lines(words: Sequence[str]) -> Iterator[str]:
    """The lines that a shell may run: all words behind `-c`, since options may follow it."""
    if _program_name(words[0]) not in _SHELLS:
        return
    for index, word in enumerate(words[1:], 1):
        if word.startswith("--command="):
            yield word.removeprefix("--command=")
        if word == "--command" or _COMMAND_OPTION.fullmatch(word):
            yield from words[index + 1 :]
            return


def _program_name(program: str) -> str:
    """`python` for `/usr/bin/python3.11`."""
    return program.rpartition("/")[2].rstrip("0123456789.")
