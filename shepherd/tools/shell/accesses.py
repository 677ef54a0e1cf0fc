"""The accesses of a shell line: its commands, the files that they read, and its redirections."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.shell import forms, syntax
from shepherd.tools.shell.places import Places
from shepherd.tools.shell.split import split_line
from shepherd.tools.shell.syntax import Command, Direction, Redirect, Word

_MAX_ACCESSES = 2000
_MAX_DISTINCT = 20_000
_MAX_CONSIDERED = 200_000
_MAX_LINES = 5
"""The maximum depth of nested lines (`sh -c "sh -c …"`)."""

_ROUGH = re.compile(r"[;&|\n(){}`]+|\$\(")
_ROUGH_NAMES = re.compile(r"[\s'\"(){}\[\]<>;|&=:,@`$+]+")


def line_accesses(line: str, cwd: Path, depth: int = 0) -> list[Access]:
    """The accesses of a line that a shell runs in `cwd`; `depth` counts the enclosing lines."""
    try:
        commands = split_line(line)
    except syntax.UnreadableError:
        commands = None
    if commands is None or depth > _MAX_LINES:
        opaque = Access(AccessKind.SHELL, line, Claim.OPAQUE)
        return _limited([opaque, *_rough_accesses(line, cwd)], line)
    if not commands:  # an empty line or a comment
        return [Access(AccessKind.SHELL, shlex.join([line]))]
    return _limited(_accesses_of(commands, cwd, depth), line)


def argv_accesses(argv: Sequence[str], cwd: Path) -> list[Access]:
    """The accesses of a program that is started with these words, without a shell."""
    command = Command([syntax.literal(word) for word in argv])
    return _limited(_accesses_of([command], cwd, depth=0), shlex.join(argv))


def _accesses_of(commands: Sequence[Command], cwd: Path, depth: int) -> Iterator[Access]:
    """The accesses of each command, in the directories to which the commands before it led."""
    places = Places(cwd)
    others = [command for command in commands if _files_read(command, places) is None]
    for command in commands:
        # beside a program that may make links, a name may lead elsewhere by then
        is_sure = all(other is command for other in others)
        yield from _command_accesses(command, places, depth, is_sure=is_sure)
        places.follow(command)


def _command_accesses(
    command: Command, places: Places, depth: int, *, is_sure: bool
) -> Iterator[Access]:
    """What one command of a line touches, in any of the places in which it may run."""
    files = _files_read(command, places)
    claim = _claim(command, places, reads=files is not None)
    if command.words or command.assignments:
        text = syntax.command_text([*command.assignments, *command.words])
        reads = files is not None and claim is not Claim.OPAQUE
        yield Access(AccessKind.SHELL, text, claim, wildcards=reads)
    elif claim is Claim.OPAQUE:  # a redirection alone has no words that a rule could name
        yield Access(AccessKind.SHELL, ">", claim)
    named = Claim.EXACT if is_sure and places.known else Claim.HELD
    yield from (Access(AccessKind.READ, str(path), named) for path in files or ())
    if command.program == "git" or (files is None and any(map(_is_git, command.texts))):
        yield from (Access(AccessKind.REPOSITORY, str(place)) for place in places.all)
    for redirect in filter(_opens_file, command.redirects):
        kinds = _KINDS[redirect.direction]
        yield from (Access(k, str(p), named) for p in places.paths(redirect.target) for k in kinds)
    if command.words:
        yield from _inner_accesses(command, places, depth)
    yield from _mentions(command, [] if files is not None else command.words, places)


_KINDS = {
    Direction.READ: (AccessKind.READ,),
    Direction.WRITE: (AccessKind.WRITE,),
    Direction.BOTH: (AccessKind.READ, AccessKind.WRITE),
}
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero"})
_HARMLESS_SETTING = re.compile(r"(?:LC_[A-Z]+|LANG|TZ|NO_COLOR|COLUMNS)=[\w.@-]*")


def _files_read(command: Command, places: Places) -> list[Path] | None:
    """The files that a command of a known form reads; None if it may do anything else."""
    if any(not _HARMLESS_SETTING.fullmatch(setting.text) for setting in command.assignments):
        return None
    if not command.words:
        return []
    named = forms.files_read(command.texts)
    if named is None:
        return None
    paths = [p for word in command.words[1:] if word.text in named for p in places.paths(word)]
    if command.program == "git":  # `HEAD:a.txt`
        paths += [p for name in named for p in places.named(name.rpartition(":")[2])]
    return None if forms.reads_below(command.texts, paths) else paths


def _opens_file(redirect: Redirect) -> bool:
    """Whether a redirection opens a file, other than harmless devices."""
    return redirect.target.text not in _HARMLESS_TARGETS


def _is_git(word: str) -> bool:
    return word.rpartition("/")[2] == "git"


_CHANGES_NAMES = """
. source eval exec builtin command alias unalias bind caller compgen complete compopt declare
typeset local readonly export unset let read mapfile readarray getopts set shopt enable hash trap
fc history logout suspend bg fg disown shift return break continue ulimit umask coproc setvar
pushd popd dirs chdir jobs autoload functions integer float nameref whence time
test [ printf wait exit times :
"""
_CHANGES_SHELL = frozenset(_CHANGES_NAMES.split())
"""Builtins that run text, evaluate a name or change the shell, unless their form is known."""

_CONNECTIONS = ("/dev/tcp/", "/dev/udp/")
_OF_PROCESS = re.compile(
    r"/proc/[./]*(?:[0-9*?[]|self|thread-self).*/(?:cwd|root|fd|map_files|[^/]*[*?[])|/dev/[./]*fd/.*/"
)
"""`/proc/self/fd/3` and its like lead to any file."""


def _claim(command: Command, places: Places, *, reads: bool) -> Claim:
    """Whether a rule for the words of the command can cover it; it `reads` if its form is known."""
    targets = [redirect.target for redirect in command.redirects]
    words = [*command.assignments, *command.words]
    is_opaque = (
        # what a word stands for is known only at run time
        any(word.dynamic or syntax.is_wide(word) for word in [*words, *targets])
        or any(_OF_PROCESS.search(word.text) for word in [*words, *targets])
        or any(target.glob or target.text.startswith(_CONNECTIONS) for target in targets)
        or _program_is_uncertain(command)
        # a builtin would keep the setting
        or (command.program in _CHANGES_SHELL and (not reads or bool(command.assignments)))
        or _may_become_option(command.words, reads=reads)
    )
    if is_opaque:
        return Claim.OPAQUE
    opened = filter(_opens_file, command.redirects)
    # its input may be a program
    is_fed = command.fed or command.piped or any(r.direction is not Direction.WRITE for r in opened)
    pairs = zip(command.texts, [*command.texts[1:], ""], strict=False)  # there may be no words
    is_elsewhere = any(_is_git(w) and (command.assignments or n.startswith("-")) for w, n in pairs)
    # the same words mean another program in another directory
    is_held = not places.known or (not reads and (is_fed or is_elsewhere or places.may_have_moved))
    return Claim.HELD if is_held else Claim.EXACT


def _program_is_uncertain(command: Command) -> bool:
    """Whether it is not certain what runs: a wildcard is the program, or an assignment."""
    if not command.words:
        return bool(command.assignments)  # they change the shell for later commands
    program = command.words[0]
    if program.text == "[":
        return False  # a builtin; without a `]` it is no wildcard
    return program.glob or program.tilde or not program.text or "=" in program.text


_ANY_OPTION = frozenset({"ls", "cat", "head", "tail", "stat", "echo"})
"""None of their options reads, writes or runs another file."""


def _may_become_option(words: Sequence[Word], *, reads: bool) -> bool:
    """Whether a wildcard may match a file whose name is read as an option.

    Only the text of the wildcard counts, because its matches may change before the command runs.
    """
    if not words or words[0].text in _ANY_OPTION:
        return False
    is_option = True  # up to a `--` that is not the value of an option
    for word, before in zip(words[1:], words, strict=False):
        if reads and word.text == "--" and not before.text.startswith("-"):
            is_option = False
        start = word.text[: next((i for i, c in enumerate(word.outline) if c in "*?["), 0)]
        is_path = "/" in start or (reads and bool(start))
        if word.glob and is_option and (start.startswith("-") or not is_path):
            return True
    return False


_RUNNER_NAMES = """
sudo doas su env nice nohup time timeout xargs exec command builtin setsid stdbuf ionice chrt
taskset watch strace ltrace unshare nsenter chroot flock parallel find fd busybox toybox entr
script systemd-run runuser pkexec eval sh bash dash zsh ksh ash fish
"""
_RUNNERS = frozenset(_RUNNER_NAMES.split())
"""Programs that run a command that their words hold."""

_MAX_WORDS = 500
"""The maximum number of such a program's words; each may begin a command."""

_ATTACHED = re.compile(r"--[\w-]+=|-[A-Za-z](?=\w)")
_IS_LINE = re.compile(r"[^\w./:=@%+,~-]")


def _inner_accesses(command: Command, places: Places, depth: int) -> Iterator[Access]:
    """The commands that a command may run in turn, and their files, for the rules that deny."""
    words = command.texts
    if command.assignments:  # a rule that denies `rm` also counts for `X=1 rm`
        text = syntax.command_text(command.words)
        yield Access(AccessKind.SHELL, text, Claim.MENTION, wildcards=True)
    if _name(words[0]) not in _RUNNERS:
        return
    if len(words) > _MAX_WORDS:
        raise OverflowError("too many words")
    lines = [_ATTACHED.sub("", word, count=1) for word in words[1:] if _IS_LINE.search(word)]
    for line in [*lines, " ".join(words[1:])] if words[0] == "eval" else lines:
        # where it runs matters little, because only rules that deny count
        for access in line_accesses(line, places.all[0], depth + 1):
            yield replace(access, claim=Claim.MENTION, wildcards=False)
    for start in range(1, len(words)):  # which word is the program depends on the options
        yield Access(AccessKind.SHELL, shlex.join(words[start:]), Claim.MENTION)


_WRITER_NAMES = """
tee dd cp mv rm install ln truncate shred touch unlink rmdir rsync scp patch split csplit
chmod chown chgrp setfacl chattr mkfifo sponge fallocate unzip
"""
_WRITERS = frozenset(_WRITER_NAMES.split())
_FRAGMENTS = re.compile(r"[=:,@]+")


def _mentions(command: Command, words: Sequence[Word], places: Places) -> Iterator[Access]:
    """The files that words may name, for the rules that deny; some programs write theirs."""
    programs = [_name(word.text) for word in words]
    if not _RUNNERS.issuperset(programs[:1]):
        del programs[1:]
    kinds = [AccessKind.READ] + [AccessKind.WRITE] * (not _WRITERS.isdisjoint(programs))
    for word in [*command.assignments, *words]:
        paths, parts = places.paths(word), _FRAGMENTS.split(word.text)[1:]
        if not re.search(r"\s", word.text):  # prose, such as the message of a commit
            parts += [word.text[2:]] if word.text.startswith("-") else []
            paths += [path for part in parts for path in places.named(part)]
        yield from (Access(k, str(path), Claim.MENTION) for path in paths for k in kinds)


def _name(program: str) -> str:
    """`python` for `/usr/bin/python3.11`."""
    return program.rpartition("/")[2].rstrip("0123456789.")


def _rough_accesses(line: str, cwd: Path) -> Iterator[Access]:
    """The possible accesses of a line that can't be parsed, for the rules that deny."""
    for part in _ROUGH.split(line):
        words = [word.strip("'\"") for word in part.split()]
        # a command may stand behind keywords and wrappers: `then sudo rm x`
        for start in range(min(len(words), 4)):
            yield Access(AccessKind.SHELL, shlex.join(words[start:]), Claim.MENTION)
    places = Places(cwd)
    for name in dict.fromkeys(_ROUGH_NAMES.split(line)):
        yield from (Access(AccessKind.READ, str(p), Claim.MENTION) for p in places.named(name))


def _limited(accesses: Iterable[Access], line: str) -> list[Access]:
    """The accesses without duplicates; beyond the limit the line is opaque as a whole.

    They are counted before duplicates are removed, so that nothing uncounted can run unasked.
    Raises ToolError if they are too many to check even against the rules that deny.
    """
    distinct: dict[Access, None] = {}
    count = 0
    try:
        for count, access in enumerate(accesses, 1):
            distinct[access] = None
            if len(distinct) > _MAX_DISTINCT or count > _MAX_CONSIDERED:
                raise OverflowError("too many files and commands")
    except OverflowError as error:
        raise ToolError(f"the command has {error}; split it into several") from error
    if count > _MAX_ACCESSES:
        distinct[Access(AccessKind.SHELL, line, Claim.OPAQUE)] = None
    return list(distinct)
