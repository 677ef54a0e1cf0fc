"""The shell's own commands: which only do what their words say, and which change the shell."""

import re
from collections.abc import Sequence

_CHANGES_NAMES = """
. source eval exec builtin command alias unalias bind caller compgen complete compopt declare
typeset local readonly export unset let read mapfile readarray getopts set shopt enable hash trap
fc history logout suspend bg fg disown shift return break continue ulimit umask coproc setvar
pushd popd dirs chdir jobs autoload functions integer float nameref whence time
"""
_CHANGES_SHELL = frozenset(_CHANGES_NAMES.split())
_SPECIAL = frozenset({":", "exit", "times"})
"""An assignment before these outlives them in a POSIX shell."""

_EVALUATING = frozenset({"test", "[", "printf", "wait", "exit", "kill"})
"""In some shell these evaluate an operand: `test -v 'x[$(date)]'` runs `date` in bash."""

_SETTING = re.compile(
    r"(?:PATH|HOME|IFS|ENV|PS[0-4]|CDPATH|PWD|OLDPWD|SHELL|SHELLOPTS|GLOBIGNORE|POSIXLY_CORRECT"
    r"|PROMPT_COMMAND|EXECIGNORE|FPATH|LOCPATH|GCONV_PATH|NLSPATH|TMPDIR|EDITOR|VISUAL|BROWSER"
    r"|LESSOPEN|LESSCLOSE|[A-Z_]*PAGER|MAKEFLAGS|MAKEFILES|[A-Z0-9_]*_ASKPASS|CC|CXX|RUBYLIB|NODE_PATH|CLASSPATH"
    r"|PYTHON(?:STARTUP|HOME|BREAKPOINT|EXECUTABLE|INSPECT)"
    r"|[A-Z_]*(?:OPTIONS|OPTS|OPT|_RSH|_WRAPPER)|(?:BASH|LD_|DYLD_|GIT_|SSH_|XDG_|PERL5|MALLOC_)\w*"
    r")\+?="
)


def is_setting(assignment: str, program: str) -> bool:
    """Whether a variable is set that decides which programs run, or that outlives the command."""
    return program in _SPECIAL or _SETTING.match(assignment) is not None


def changes_shell(words: Sequence[str]) -> bool:
    """Whether the words are a builtin that runs text, evaluates a name or changes what follows."""
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
