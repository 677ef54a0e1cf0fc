"""Options by which a program that nobody here has looked at may run, load or write another file."""

import re

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
"""Programs without such options, or whose options are looked at one by one elsewhere."""

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


def is_telling(program: str, word: str) -> bool:
    """Whether a word may tell a program that is not known which file to run, load or write."""
    return program not in _PLAIN and _TELLING.match(word) is not None
