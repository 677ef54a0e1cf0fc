"""The accesses of a shell line: its commands, the files they name, and its redirections."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.shell import programs, syntax
from shepherd.tools.shell.places import Places, directory_accesses, named_words, resolved
from shepherd.tools.shell.split import split_line

_MAX_CLUSTER = 40
_FRAGMENTS = re.compile(r"[=:,@]+")
_CODE_FRAGMENTS = re.compile(r"[\s'\"(){}\[\]<>;|&=:,@`$+]+")
_SHORT_OPTION = re.compile(r"-[A-Za-z0-9]+")


def mentioned_files(
    word: syntax.Word, places: Places, *, code: bool, writes: bool
) -> Iterator[Access]:
    """The files that a word may name; `code` if it may hold a program's text.

    They are also written if the program `writes` its arguments. Raises OverflowError if a
    wildcard matches too many files.
    """
    fragments = [word.text, *_fragments(word.text, code=code)]
    for place in places.all:
        names = [*fragments, *(syntax.expand_glob(word, place) if word.glob else ())]
        for access in _mentions(names, places, place):
            yield access
            if writes:
                yield replace(access, kind=AccessKind.WRITE)


def rough_mentions(text: str, place: Path) -> Iterator[Access]:
    """The files that a text which can't be parsed may name."""
    return _mentions(dict.fromkeys(_CODE_FRAGMENTS.split(text)), Places(place), place)


def _mentions(names: Iterable[str], places: Places, place: Path) -> Iterator[Access]:
    """The files that the names may stand for in a place; what is no path is left out."""
    for name in names:
        path = places.file(name, place)
        if path is not None:
            yield Access(AccessKind.READ, str(path), Claim.MENTION)


def _fragments(text: str, *, code: bool) -> list[str]:
    """The parts of a word that may be names of files: `a` and `b` in `--x=a,b`."""
    if code:
        return _CODE_FRAGMENTS.split(text)
    if " " in text or "\n" in text:
        return []  # prose, such as the message of a commit
    parts = _FRAGMENTS.split(text)
    return [*_attached_values(text), *(parts if len(parts) > 1 else [])]


def _attached_values(text: str) -> list[str]:
    """The possible values in `-sT.env`: the text after each letter of the cluster."""
    cluster = _SHORT_OPTION.match(text)
    end = min(cluster.end(), _MAX_CLUSTER) if cluster else 0
    return [text[start:] for start in range(2, end + 1) if start < len(text)]


_MAX_ACCESSES = 2000
_MAX_DISTINCT = 20_000
_MAX_CONSIDERED = 200_000
_MAX_LINES = 5
"""The maximum depth of nested lines (`sh -c "sh -c …"`)."""

_ROUGH = re.compile(r"[;&|\n(){}`]+|\$\(")


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
    command = syntax.Command([syntax.literal(word) for word in argv])
    return _limited(_command_accesses(command, Places(cwd), depth=0), shlex.join(argv))


def _accesses_of(commands: Sequence[syntax.Command], cwd: Path, depth: int) -> Iterator[Access]:
    """The accesses of each command, in the directories to which the commands before it led."""
    places = Places(cwd, commands)
    for command in commands:
        yield from _command_accesses(command, places, depth)
        places.follow(command)


def _command_accesses(command: syntax.Command, places: Places, depth: int) -> Iterator[Access]:
    """What one command of a line touches, in any of the places in which it may run."""
    claim = Claim.OPAQUE if is_doubtful(command, places) else Claim.EXACT
    if command.words or command.assignments:
        text = syntax.command_text([*command.assignments, *command.words])
        yield Access(AccessKind.SHELL, text, claim, named_words(command))
    elif claim is Claim.OPAQUE:  # a redirection alone has no words that a rule could name
        yield Access(AccessKind.SHELL, ">", claim)
    if command.words:
        yield from _inner_accesses(command, places, depth)
        yield from directory_accesses(command, places)
    for redirect in command.redirects:
        yield from _redirect_accesses(redirect, places)
    code, writes = programs.runs_code(command.texts), programs.writes_files(command.texts)
    for word in [*command.words, *command.assignments]:
        yield from mentioned_files(word, places, code=code, writes=writes)


def _inner_accesses(command: syntax.Command, places: Places, depth: int) -> Iterator[Access]:
    """The commands that a command runs in turn; a line that can't be parsed stays opaque."""
    if command.assignments:  # a rule that denies `rm` also counts for `X=1 rm`
        yield Access(AccessKind.SHELL, syntax.command_text(command.words), Claim.MENTION)
    for inner in programs.inner_commands(command.texts):
        if isinstance(inner, str):
            # only rules that deny matter here, so one of the places is enough
            for access in line_accesses(inner, places.all[0], depth + 1):
                claim = Claim.OPAQUE if access.claim is Claim.OPAQUE else Claim.MENTION
                yield Access(access.kind, access.target, claim)
        else:
            yield Access(AccessKind.SHELL, shlex.join(inner), Claim.MENTION)


def _redirect_accesses(redirect: syntax.Redirect, places: Places) -> Iterator[Access]:
    """The files that a redirection may read or write."""
    if not opens_file(redirect):
        return
    for place in places.all:
        path = resolved(redirect.target, place)
        if path is None:
            continue  # it is empty or too long, so the shell can't open it either
        if redirect.direction is not syntax.Direction.WRITE:
            yield Access(AccessKind.READ, str(path))
        if redirect.direction is not syntax.Direction.READ:
            yield Access(AccessKind.WRITE, str(path))


def _rough_accesses(line: str, cwd: Path) -> Iterator[Access]:
    """The possible accesses of a line that can't be parsed, for the rules that deny."""
    for part in _ROUGH.split(line):
        words = [word.strip("'\"") for word in part.split()]
        # a command may stand behind keywords and wrappers: `then sudo rm x`
        for start in range(min(len(words), 4)):
            yield Access(AccessKind.SHELL, shlex.join(words[start:]), Claim.MENTION)
    yield from rough_mentions(line, cwd)


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


_CHANGES_NAMES = """
. source eval exec builtin command alias unalias bind caller compgen complete compopt declare
typeset local readonly export unset let read mapfile readarray getopts set shopt enable hash trap
fc history logout suspend bg fg disown shift return break continue ulimit umask coproc setvar
pushd popd dirs chdir jobs autoload functions integer float nameref whence time
"""
_CHANGES_SHELL = frozenset(_CHANGES_NAMES.split())
_SPECIAL = frozenset({":", "exit", "times"})
"""In a POSIX shell, an assignment before these builtins remains set after them."""

_EVALUATING = frozenset({"test", "[", "printf", "wait", "exit", "kill"})
"""Some shells evaluate an operand of these: `test -v 'x[$(date)]'` runs `date` in bash."""

_SETTING = re.compile(
    r"(?:PATH|HOME|IFS|ENV|PS[0-4]|CDPATH|PWD|OLDPWD|SHELL|SHELLOPTS|GLOBIGNORE|POSIXLY_CORRECT"
    r"|PROMPT_COMMAND|EXECIGNORE|FPATH|LOCPATH|GCONV_PATH|NLSPATH|TMPDIR|EDITOR|VISUAL|BROWSER"
    r"|LESSOPEN|LESSCLOSE|[A-Z_]*PAGER|MAKEFLAGS|MAKEFILES|[A-Z0-9_]*_ASKPASS|CC|CXX|RUBYLIB|NODE_PATH|CLASSPATH"
    r"|PYTHON(?:STARTUP|HOME|BREAKPOINT|EXECUTABLE|INSPECT)"
    r"|[A-Z_]*(?:OPTIONS|OPTS|OPT|_RSH|_WRAPPER)|(?:BASH|LD_|DYLD_|GIT_|SSH_|XDG_|PERL5|MALLOC_)\w*"
    r")\+?="
)

_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero"})
_CONNECTIONS = ("/dev/tcp/", "/dev/udp/")
_OF_PROCESS = re.compile(
    r"/proc/[./]*(?:[0-9*?[]|self|thread-self).*/(?:cwd|root|fd|map_files|[^/]*[*?[])|/dev/[./]*fd/.*/"
)
_TAKES_ARGUMENTS = frozenset({"xargs", "parallel"})
_TAKES_TEXT = frozenset({"cat", "tee", "grep", "wc", "head", "tail", "sort", "uniq", "cut", "tr"})


def is_setting(assignment: str, program: str) -> bool:
    """Whether an assignment may change which programs run, or remains set after the command."""
    return program in _SPECIAL or _SETTING.match(assignment) is not None


def changes_shell(words: Sequence[str]) -> bool:
    """Whether the words are a builtin that runs text, evaluates a name or changes the shell."""
    if not words:
        return False
    program, arguments = words[0], words[1:]
    if program == "command" and arguments[:1] in (["-v"], ["-V"]):
        return False  # it only looks for a program
    if program in _CHANGES_SHELL:
        return True
    option = arguments[0] if arguments[:1] not in ([], ["--"], ["-n"]) else ""
    if program in ("printf", "wait") and option.startswith("-"):
        return True  # their options name a variable to set, such as `printf -v x`
    return program in _EVALUATING and any(
        word in ("-v", "-R") or "$(" in word or "`" in word for word in arguments
    )


def is_doubtful(command: syntax.Command, places: Places) -> bool:
    """Whether the command may do more than a rule for its words covers."""
    targets = [redirect.target for redirect in command.redirects]
    return (
        not places.known
        # what a word stands for is known only at run time
        or not all(_is_static(word) for word in [*command.words, *command.assignments])
        # `/proc/self/fd/3` and its like lead to any file
        or any(_OF_PROCESS.search(word.text) for word in [*command.words, *targets])
        or not all(map(_is_file, targets))
        # the target may be a link by then
        or (places.makes_links and any(map(opens_file, command.redirects)))
        or _program_is_uncertain(command)
        or _runs_its_input(command)
        # the same words start another program in another directory
        or (places.may_have_moved and _names_relative_program(command.texts))
        or any(is_setting(word.text, command.program) for word in command.assignments)
        or changes_shell(command.texts)
        or may_become_option(command.words)
    )


def opens_file(redirect: syntax.Redirect) -> bool:
    """Whether a redirection opens a file, other than harmless devices."""
    return redirect.target.text not in _HARMLESS_TARGETS


def _is_static(word: syntax.Word) -> bool:
    """Whether the line says what the word stands for, and its wildcards can be expanded."""
    return not word.dynamic and not syntax.is_wide(word)


def _is_file(word: syntax.Word) -> bool:
    """Whether a redirection's target is a single file that bash does not treat as a connection."""
    return not word.dynamic and not word.glob and not word.text.startswith(_CONNECTIONS)


def _program_is_uncertain(command: syntax.Command) -> bool:
    """Whether it is not certain what runs: a wildcard is the program, or an assignment."""
    if not command.words:
        return bool(command.assignments)  # they change the shell for later commands
    program = command.words[0]
    if program.text == "[":
        return False  # a builtin; without a `]` it is no wildcard
    return program.glob or program.tilde or not program.text or "=" in program.text


def _runs_its_input(command: syntax.Command) -> bool:
    """Whether a program may run its input as code, which no rule can check."""
    if command.fed and command.program not in _TAKES_TEXT:
        return True
    if command.program in _TAKES_ARGUMENTS:
        return True
    reads = any(redirect.direction is not syntax.Direction.WRITE for redirect in command.redirects)
    return (command.piped or reads) and programs.reads_program(command.texts)


def _names_relative_program(words: Sequence[str]) -> bool:
    """Whether the program, or an interpreter's script, is named by a relative path."""
    if not words:
        return False
    if "/" in words[0]:
        return not words[0].startswith("/")
    if programs.is_interpreter(words[0]):
        return any(not word.startswith(("-", "/")) for word in words[1:])
    inner = [command for command in programs.inner_commands(words) if not isinstance(command, str)]
    return any(
        programs.is_interpreter(command[0]) or command[0].startswith(("./", "../"))
        for command in inner
    )


_ANY_OPTION = frozenset({"ls", "cat", "head", "tail", "stat", "echo"})
"""None of their options reads, writes or runs another file."""

_FILE_NAMES = """
cp mv rm mkdir rmdir touch ln chmod chown du wc sort uniq cut diff cmp file grep egrep fgrep rg
md5sum sha1sum sha256sum basename dirname less more nl tac pytest ruff mypy pyright black
"""
_FILES = frozenset(_FILE_NAMES.split())
"""Their operands are files, or come before the first file; they support `--`."""

_GIT_FLAG_NAMES = """
--stat --cached --staged --name-only --name-status --numstat --oneline --quiet --patch --force -p
"""
_FLAGS = {
    "git": frozenset(_GIT_FLAG_NAMES.split()),
    "rm": frozenset({"-f", "-r", "-rf", "-fr"}),
    "wc": frozenset({"-l", "-c", "-w", "-m"}),
    "grep": frozenset({"-n", "-i", "-l", "-r", "-c", "-v", "-q"}),
    "cp": frozenset({"-r", "-a", "-p"}),
}
"""Options that never read a following `--` as their value."""


def may_become_option(words: Sequence[syntax.Word]) -> bool:
    """Whether a wildcard of the command may match a file whose name is read as an option.

    Only the text of the wildcard counts, because its matches may change before the command runs.
    """
    program = words[0].text.rsplit("/", 1)[-1] if words else ""
    if program in _ANY_OPTION:
        return False
    end_of_options = _end_of_options(words, _FLAGS.get(program, frozenset()))
    return any(
        word.glob and not _names_file(word, program, after_options=index > end_of_options)
        for index, word in enumerate(words[1:], 1)
    )


def _names_file(word: syntax.Word, program: str, *, after_options: bool) -> bool:
    """Whether the matches of a wildcard are read as files, whatever their names are."""
    if program == "git":
        return after_options
    if after_options and program in _FILES:
        return True
    wildcards = [index for index, char in enumerate(word.outline) if char in "*?["]
    fixed_start = word.text[: min(wildcards, default=len(word.text))]
    if not fixed_start or fixed_start.startswith("-"):
        return False  # a file could be called `-rf`
    return "/" in fixed_start or program in _FILES


def _end_of_options(words: Sequence[syntax.Word], flags: frozenset[str]) -> int:
    """The index of the `--` that ends the options; the number of words if there is none."""
    for index, word in enumerate(words):
        if word.text != "--" or index == 0:
            continue
        before = words[index - 1].text
        # another option may take the `--` as its value
        if not before.startswith("-") or before in flags:
            return index
    return len(words)
