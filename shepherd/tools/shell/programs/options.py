"""Words with which ordinary programs run others, load code, or read and write any file.

Each entry has programs, a colon, and patterns. A pattern matches the beginning of a word. After
an option, it also covers the next word (`\\x20` is the space between them). A last `$` marks the
end of the word. A rule must name such a word and all words before it; no wildcard covers it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from shepherd.tools.shell.programs.build_options import BUILD_OPTIONS
from shepherd.tools.shell.programs.service_options import SERVICE_OPTIONS, SUBCOMMANDS

_PLAIN_NAMES = """
[ : alias apropos arch awk b2sum base32 base64 basename bash bg bunx bzip2 bunzip2 bzcat cal cat cd
chgrp chmod chown cksum clear cmp column comm command cp cut cygpath dash date dd df diff diff3
dir dircolors dirname dirs disown du echo egrep env exa exit expand expr eza factor false fd fg
fgrep file find fish fmt fold free gawk getconf getent git grep groups gsed gunzip gzip hash head
help hexdump history host hostid hostname iconv id ifconfig info ip jobs join kill killall ksh
last ldd leave let link ln locale locate logname logout look ls lsb_release lsblk lscpu lsof lua
lz4 man mapfile mawk md5sum mkdir mkfifo mktemp more mv nawk netstat nl node nohup nproc npx
numfmt od openssl paste pathchk perl pgrep php ping pinky pkill popd pr printenv printf ps pstree
pushd pwd python python2 python3 readlink realpath rev rg rgrep rm rmdir route ruby sdiff sed seq
set sh sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort ss stat stty sum sync
tac tail tar tasklist tee test time timeout top touch tr tree true truncate tsort tty type uname
unexpand uniq unlink uptime users uvx vmstat w wait wc whatis whereis which who whoami xxd xz
xzcat yes zcat zip zsh zstd
"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
"""Programs without such options, or with options that other modules check one by one."""

_TELLING = re.compile(
    r"-[a-zA-Z]{0,3}[cCeEfoOrRSxX](?![a-zA-Z]{3})"
    r"|--?(?:add-)?(?:agent|app|auto-?load|bind|bootstrap|browser|callback|cd|cfg|chdir|cmd|command"
    r"|conf|conn|cwd|default|diff|dir|driver|dump|edit|env|eval|exec|execute|export|expression|ext"
    r"|file|filter|from|helper|hook|import|include|init|input|interpreter|lib|listener|load|log"
    r"|merge-tool|module|open|option|out|pager|path|plugin|pre-?load|pre-?process|preview|profile"
    r"|program|python|rc|remote|require|root|rsh|run|save|script|setting|shell|socket|style|template"
    r"|tool|use|user-?(?:config|dir)|using|variable-?file|view|wrapper|write|\w*rc\b)"
    r"|[a-zA-Z]+:[^/].*|@"
)


def is_suspicious(program: str, word: str) -> bool:
    """Whether a word may make an unknown program run, load or write a file."""
    return program not in _PLAIN and _TELLING.match(word) is not None


_RISKY = r"""
jq gojq yq: -[a-zA-Z]*[fL] --from-file --library-path -i --in-place
  (?s:.*)(?<![.\w])(env|import|include|input_filename|load|load_str|strload|eval|\$ENV)\b
split csplit gsplit: --f
less more most: \+ -[a-zA-Z]*[oOkT] --lo --LO --lessk --ta
man: -C --conf -p --pre --loc -l
ps: (?!-)[a-zA-Z]*e[a-zA-Z]*$ .*environ
patch: -[a-zA-Z]*[deroB] --o --dir --ed --rej --pref -Y -z --suf
xxd: -[a-z]*r
zip: -b -lf -la --temp-path --log
7z 7za 7zr: @ -o -w -i.*@ -x.*@
tar bsdtar gtar: --lis --abs -[a-zA-Z]*[gPX] --exclude-f --add-f --vol --ind --tra.*e$ --xf.*e$ @
  [^/\s-][^/\s]*: (-[a-zA-Z]*f|--fil[a-z]*=?)\x20?[^/\s]+:
shuf: -[a-zA-Z]*o --o --ra
time: -o --o
strings objdump nm readelf size addr2line: @ --?plugin
"""

_RUNNERS = """
su ltrace unshare nsenter chroot entr script systemd-run runuser pkexec busybox toybox at batch
crontab expect gdb lldb valgrind perf screen tmux xvfb-run dbus-run-session proxychains fakeroot
faketime firejail bwrap prlimit numactl setpriv capsh choom setarch linux32 linux64 rlwrap
unbuffer chronic ts tsp sem ifne lckdo mispipe pee nq dtach sshpass tini dumb-init gosu
start-stop-daemon run-parts vi vim nvim view vimdiff ex ed emacs nano cpulimit hyperfine daemonize
ssh-agent watchexec nodemon caffeinate arch
"""
_RUNS_ANYTHING = frozenset(_RUNNERS.split())
"""Their arguments are another program, or commands; a rule must name every word."""

_WRITES_SECOND = frozenset({"uniq", "xxd"})
"""They write to their second file argument."""

_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "docker-compose", "kubectl", "oc"})
_TAKES_NO_FILE = frozenset({"logs", "ps", "rm", "rmi", "images", "inspect", "prune"})

_MAX_LENGTH = 20_000
"""The maximum length of a pair of words to check; a rule must name longer ones."""

_VERSION = re.compile(r"-?[0-9.]+\Z|@.*\Z")


def risky_words(program: str, words: Sequence[str]) -> Iterator[int]:
    """For each risky word, the number of words that a rule must name."""
    if program in _RUNS_ANYTHING:
        yield len(words)
    if program in _WRITES_SECOND:
        files = [index for index in range(1, len(words)) if not words[index].startswith("-")]
        yield from (index + 1 for index in files[1:])
    pattern = _pattern(program) or _pattern(_VERSION.sub("", program))
    program = program.partition("@")[0] or program
    words = _without_follow(program, words)
    for index in range(1, len(words)):
        text = " ".join(words[index : index + 1 + words[index].startswith("-")])
        if pattern is None:
            if not _is_own(words[0]) and is_suspicious(program, words[index]):
                yield index + 1
        elif len(text) > _MAX_LENGTH or pattern.match(text):
            yield index + 1
    if program in SUBCOMMANDS:
        yield from _foreign_subcommand(words, SUBCOMMANDS[program].split())


def _is_own(program: str) -> bool:
    """Whether a program is a file of the project; a rule must name it."""
    return "/" in program and not program.startswith(("/", "@"))


def _foreign_subcommand(words: Sequence[str], known: Sequence[str]) -> Iterator[int]:
    """The position, from 1, of a subcommand that is another program or an alias."""
    first = next((i for i, word in enumerate(words) if i and not word.startswith(("-", "+"))), 0)
    if first and words[first] not in known:
        yield first + 1


def _without_follow(program: str, words: Sequence[str]) -> Sequence[str]:
    """The words without a `-f` that does not name a file: `docker logs -f`."""
    if program in _CONTAINERS and len(words) > 1:
        command = words[2:3] if words[1] == "compose" else words[1:2]
        if _TAKES_NO_FILE.issuperset(command) and command:
            return [word if word != "-f" else "" for word in words]
    return words


@lru_cache(maxsize=256)
def _pattern(program: str) -> re.Pattern[str] | None:
    patterns = _table().get(program)
    return re.compile("|".join(patterns)) if patterns else None


@lru_cache(maxsize=1)
def _table() -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    entries = f"{_RISKY}{BUILD_OPTIONS}{SERVICE_OPTIONS}"
    for entry in entries.replace("\n  ", " ").strip().split("\n"):
        names, _, patterns = entry.partition(": ")
        for name in names.split():
            table.setdefault(name, []).extend(_ended(text) for text in patterns.split())
    return table


def _ended(pattern: str) -> str:
    return f"(?:{pattern[:-1]}(?!\\S))" if pattern.endswith("$") else f"(?:{pattern})"
