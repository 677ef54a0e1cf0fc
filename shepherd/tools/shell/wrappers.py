"""Programs that run other programs; the rules that deny also check the programs they run."""

import re
from collections.abc import Iterator, Sequence

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

_RISKY_GIT_OPTIONS = frozenset(
    {"--output", "--ext-diff", "--textconv", "--upload-pack", "--receive-pack", "--exec"}
    | {"--open-files-in-pager"}
)
"""Git accepts them abbreviated, too."""


def is_interpreter(program: str) -> bool:
    """Whether the program runs a script or its input."""
    return _name(program) in _SHELLS | _CODE


def reads_program(words: Sequence[str]) -> bool:
    """Whether the words start an interpreter that runs its input."""
    if not words:
        return False
    if _name(words[0]) in _WRAPPERS:
        return any(is_interpreter(word) for word in words[1:])
    if _name(words[0]) in _READS_COMMANDS:
        return True
    if not is_interpreter(words[0]):
        return False
    if _name(words[0]) in _AWKS:
        return any(word.startswith(("-f", "--f", "-i", "-E", "-l")) for word in words[1:])
    for word in words[1:]:
        if not word.startswith("-"):
            return word.startswith(("/dev/", "/proc/"))
        if not _GIVES_PROGRAM.fullmatch(word):
            return True
    return True


def runs_code(words: Sequence[str]) -> bool:
    """Whether the words may contain the text of a program, in which file names may be hidden."""
    if any(_name(word) in _SHELLS or word == "eval" for word in words):
        return True
    return any(_name(w) in _CODE for w in words) and (
        _name(words[0]) in ("awk", "gawk") or any(w[:2] in _CODE_OPTIONS for w in words)
    )


def writes_files(words: Sequence[str]) -> bool:
    """Whether the program, or a program that it runs, changes or removes its file arguments."""
    programs = words if words and _name(words[0]) in _WRAPPERS else words[:1]
    return any(_name(word) in _WRITERS for word in programs) or (
        any(_name(word) in _EDITORS for word in programs)
        and any(_EDITS_IN_PLACE.match(word) for word in words)
    )


def runs_more(words: Sequence[str]) -> bool:
    """Whether an option of git writes a file or runs a program other than git's own."""
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    return _name(words[0]) == "git" and any(
        risky.startswith(option) and len(option) > len("--x")
        for risky in _RISKY_GIT_OPTIONS
        for option in options
    )


def inner_commands(words: Sequence[str]) -> Iterator[list[str] | str]:
    """The commands that a command may run in turn: words, or a line for a shell.

    Raises OverflowError if it has too many words to check.
    """
    if not words:
        return
    if _name(words[0]) in _WRAPPERS and len(words) > _MAX_WORDS:
        raise OverflowError("too many words")
    if _name(words[0]) in _WRAPPERS:
        for start in range(1, len(words)):
            yield list(words[start:])
            yield from _script(words[start:])
            if any(char in words[start] for char in " \t\n"):
                yield _SPLIT_OPTION.sub("", words[start])
    if words[0] == "eval":
        yield " ".join(words[1:])
    yield from _script(words)


def _script(words: Sequence[str]) -> Iterator[str]:
    if _name(words[0]) not in _SHELLS:
        return
    for index, word in enumerate(words[1:], 1):
        if word.startswith("--command="):
            yield word.removeprefix("--command=")
        if word == "--command" or _COMMAND_OPTION.fullmatch(word):
            yield from words[index + 1 :]
            return


def _name(program: str) -> str:
    return program.rpartition("/")[2].rstrip("0123456789.")
