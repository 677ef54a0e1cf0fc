"""Detects commands that may do more than their words say; no rule can allow them."""

import re
from collections.abc import Sequence

from shepherd.tools.shell.places import Places
from shepherd.tools.shell.programs import inner_commands, is_interpreter, reads_program, runs_more
from shepherd.tools.shell.syntax import Command, Direction, Redirect, Word, is_wide

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
        return False
    if program in _CHANGES_SHELL:
        return True
    option = arguments[0] if arguments[:1] not in ([], ["--"], ["-n"]) else ""
    if program in ("printf", "wait") and option.startswith("-"):
        return True
    return program in _EVALUATING and any(
        word in ("-v", "-R") or "$(" in word or "`" in word for word in arguments
    )


def is_doubtful(command: Command, places: Places) -> bool:
    """Whether the command may do more than a rule for its words covers."""
    words = [word.text for word in command.words]
    return (
        not places.known
        or not all(_is_static(word) for word in [*command.words, *command.assignments])
        or any(
            _is_process_path(word.text)
            for word in [*command.words, *map(_target, command.redirects)]
        )
        or not all(_is_file(redirect.target) for redirect in command.redirects)
        or (places.makes_links and any(map(opens_file, command.redirects)))
        or _program_is_uncertain(command)
        or _runs_its_input(command)
        or (places.moved and _names_relative_program(words))
        or any(is_setting(word.text, command.program) for word in command.assignments)
        or changes_shell(words)
        or may_become_option(command.words)
        or (bool(words) and runs_more(words))
    )


def opens_file(redirect: Redirect) -> bool:
    """Whether a redirection opens a file, other than harmless devices."""
    return redirect.target.text not in _HARMLESS_TARGETS


def _is_process_path(text: str) -> bool:
    """Whether a path leads through a directory or file of a process, known only at run time."""
    return _OF_PROCESS.search(text) is not None


def _target(redirect: Redirect) -> Word:
    return redirect.target


def _is_static(word: Word) -> bool:
    return not word.dynamic and not is_wide(word)


def _is_file(word: Word) -> bool:
    """Whether a redirection's target is a single file that bash does not treat as a connection."""
    return not word.dynamic and not word.glob and not word.text.startswith(_CONNECTIONS)


def _program_is_uncertain(command: Command) -> bool:
    """Whether a wildcard stands for the program, or its name looks like an assignment."""
    if not command.words:
        return bool(command.assignments)  # they change the shell for later commands
    program = command.words[0]
    if program.text == "[":
        return False
    return program.glob or program.tilde or not program.text or "=" in program.text


def _runs_its_input(command: Command) -> bool:
    """Whether a program may run its input as code, which no rule can check."""
    if command.fed and command.program not in _TAKES_TEXT:
        return True
    if command.program in _TAKES_ARGUMENTS:
        return True
    reads = any(redirect.direction is not Direction.WRITE for redirect in command.redirects)
    return (command.piped or reads) and reads_program([word.text for word in command.words])


def _names_relative_program(words: Sequence[str]) -> bool:
    """Whether the program, or an interpreter's script, is named by a relative path."""
    if not words:
        return False
    if "/" in words[0]:
        return not words[0].startswith("/")
    if is_interpreter(words[0]):
        return any(not word.startswith(("-", "/")) for word in words[1:])
    inner = [command for command in inner_commands(words) if not isinstance(command, str)]
    return any(
        is_interpreter(command[0]) or command[0].startswith(("./", "../")) for command in inner
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


def may_become_option(words: Sequence[Word]) -> bool:
    """Whether a wildcard of the command may match a file whose name is read as an option.

    Only the text of the wildcard counts, because its matches may change before the command runs.
    """
    program = words[0].text.rsplit("/", 1)[-1] if words else ""
    if program in _ANY_OPTION:
        return False
    behind = _behind_dashes(words, _FLAGS.get(program, frozenset()))
    return any(
        word.glob and not _names_file(word, program, behind=index > behind)
        for index, word in enumerate(words[1:], 1)
    )


def _names_file(word: Word, program: str, *, behind: bool) -> bool:
    if program == "git":
        return behind
    if behind and program in _FILES:
        return True
    fixed = _fixed_part(word)
    if not fixed or fixed.startswith("-"):
        return False
    return "/" in fixed or program in _FILES


def _fixed_part(word: Word) -> str:
    """The text before the first wildcard."""
    ends = [index for index, char in enumerate(word.outline) if char in "*?["]
    return word.text[: min(ends, default=len(word.text))]


def _behind_dashes(words: Sequence[Word], flags: frozenset[str]) -> int:
    """The index of the `--` that ends the options; the number of words if there is none."""
    for index, word in enumerate(words):
        if word.text != "--" or index == 0:
            continue
        before = words[index - 1].text
        if not before.startswith("-") or before in flags:
            return index
    return len(words)
