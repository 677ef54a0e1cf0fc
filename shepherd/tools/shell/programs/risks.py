"""Risks that a rule may miss: options that run programs, and reads of whole directories."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shepherd.tools.base import Claim
from shepherd.tools.paths import expand_home
from shepherd.tools.shell.programs.git import git_words_to_name
from shepherd.tools.shell.programs.launchers import launched
from shepherd.tools.shell.programs.options import risky_words
from shepherd.tools.shell.programs.scripts import awk_words_to_name, sed_words_to_name

_MOUNTS = "-v --volume --mount --privileged --pid --device -H --host --config"
_RUNS_BY_OPTION = {
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
    "fd": "-x -X --exec --exec-batch",
    "tar": "--to-command --use-compress-program -I --checkpoint-action -F --info-script "
    "--new-volume-script --rsh-command --rmt-command -T --files-from",
    "rg": "--pre --hostname-bin --search-zip -z",
    "sort": "--compress-program -o --output --files0-from",
    "zip": "-T -TT --unzip-command -@",
    "rsync": "-e --rsh --rsync-path --files-from -M --remote-option",
    "scp": "-S -o -D",
    "ssh": "-o -F -E -S",
    "curl": "--config --output --remote-name --output-dir --upload-file --cookie-jar "
    "--dump-header --trace --trace-ascii --unix-socket",
    "wget": "-O --output-document --use-askpass -i --input-file -o --output-file --config "
    "--post-file --body-file -e --execute",
    "man": "-P --pager -H --html",
    "go": "-exec -toolexec -vettool -overlay",
    "npm": "--script-shell --prefix --userconfig --globalconfig",
    "cargo": "--config -Z",
    "date": "-f --file",
    "file": "-f --files-from -C",
    "wc": "--files0-from",
    "du": "--files0-from -X --exclude-from",
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "podman-compose"), _MOUNTS),
}
"""A rule must name such an option and all words before it."""

_WRAPPERS = {
    "env": "-u --unset -C --chdir -S --split-string",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "timeout": "-s --signal -k --kill-after",
    "xargs": "-I -n -P -L -d -a -E -s --arg-file --max-args --max-procs --delimiter --replace",
    "sudo": "-u -g -h -p -C -r -t -T -U -D -R",
    "doas": "-u -C",
    "stdbuf": "-i -o -e",
    "nohup": "",
    "setsid": "",
    "chrt": "-p",
    "watch": "-n --interval",
    "strace": "-o -e -p -s",
    "flock": "-w -E",
    "parallel": "-j --jobs -a --arg-file -I",
    "taskset": "",
}
_MAX_DEPTH = 6
_BEFORE_PROGRAM = {"timeout": 1, "flock": 1, "taskset": 1, "chrt": 1}

_AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
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


def words_to_name(words: Sequence[str], exists: Callable[[str], bool], depth: int = 0) -> int:
    """The number of a command's words that a rule must name, because they may run other programs.

    `depth` counts the enclosing programs; if there are too many, a rule must name all words.
    """
    program = name_of(words[0])
    if depth > _MAX_DEPTH:
        return len(words)
    if program == "git":
        return git_words_to_name(words, exists)
    if program in _WRAPPERS:
        inner = _inner_program(words, program)
        named = words_to_name(words[inner:], exists, depth + 1) if inner < len(words) else 0
        return inner + max(1, named) if inner < len(words) else inner
    options = _RUNS_BY_OPTION.get(program, "").split()
    if program == "tar" and len(words) > 1 and not words[1].startswith("-"):
        words = [words[0], f"-{words[1]}", *words[2:]]
    result = [index + 1 for index, w in enumerate(words) if index and _is_one_of(w, options)]
    result += list(_reading(program, words))
    if program == "find" and result:
        return len(words)
    for start in launched(program, words):
        inner = words_to_name(words[start:], exists, depth + 1) if start < len(words) else 0
        result.append(start + inner if inner else 0)
    return max(result, default=0)


def _reading(program: str, words: Sequence[str]) -> Iterator[int]:
    if program in ("sed", "gsed"):
        yield from sed_words_to_name(words)
    if program in _AWKS:
        yield from awk_words_to_name(words)
    yield from risky_words(program, words)


def trees(words: Sequence[str], place: Path) -> Iterator[tuple[Path, Claim]]:
    """The directories of which a command may read all files, each with the claim on those files."""
    program = name_of(words[0])
    if program in _READS_NOTHING:
        return
    if program in _INDIRECT:
        inner = _inner_program(words, program) if program in _WRAPPERS else len(words)
        if inner >= len(words) or name_of(words[inner]) not in _READS_NOTHING:
            yield place, Claim.TREE
    elif program == "git":
        yield from _git_trees(words, place)
    elif program in _WRAPPERS:
        inner = _inner_program(words, program)
        if inner < len(words):
            yield from trees(words[inner:], place)
    else:
        yield from _argument_trees(program, words, place)


def name_of(program: str) -> str:
    """The name of a program without its directory and version."""
    return program.rpartition("/")[2]


def _argument_trees(
    program: str, words: Sequence[str], place: Path
) -> Iterator[tuple[Path, Claim]]:
    folders = list(_folders(words[1:], place))
    claim = Claim.TREE
    if program in _GREPS:
        if not any(_is_recursive_grep(word) for word in words[1:]):
            return
        folders = folders or [place]
    elif program in ("find", "fd"):
        if not any(_is_one_of(w, _RUNS_BY_OPTION[program].split()) for w in words[1:]):
            return
        folders = folders or [place]
    elif program in _SEARCHERS or program == "rgrep":
        hidden = any(_SHOWS_HIDDEN.fullmatch(word) for word in words[1:]) or program == "rgrep"
        claim = Claim.TREE if hidden else Claim.VISIBLE_TREE
        folders = folders or [place]
    elif program in _COPIERS:
        folders = folders if any(map(_RECURSIVE.match, words[1:])) else []
    elif program in ("tar", "bsdtar", "gtar") and not _is_packing(words):
        return
    yield from ((folder, claim) for folder in folders)


def _git_trees(words: Sequence[str], place: Path) -> Iterator[tuple[Path, Claim]]:
    if "add" not in words[1:] and "stage" not in words[1:]:
        return
    names = [word for word in words[2:] if not word.startswith("-")]
    every = any(word in ("-A", "--all") or re.match(r"-[a-zA-Z]*A", word) for word in words)
    patterns = any(word[:1] == ":" or any(c in word for c in "*?[") for word in names)
    if every or patterns or any(_folders(names, place)):
        forced = any(re.match(r"-[a-zA-Z]*f|--f", word) for word in words)
        yield place, Claim.TREE if forced else Claim.UNIGNORED_TREE


def _folders(words: Sequence[str], place: Path) -> Iterator[Path]:
    for word in words:
        for text in (word, word.partition("=")[2], word[2:] if word[:1] == "-" else ""):
            if not text:
                continue
            path = Path(place, expand_home(text))
            try:
                is_folder = path.is_dir()
            except (OSError, ValueError):
                continue
            if is_folder:
                yield path.resolve()


def _is_recursive_grep(word: str) -> bool:
    return re.match(r"-[a-zA-Z]*[rR]|--r|--dereference-r|-[a-zA-Z]*d|--dir", word) is not None


def _is_packing(words: Sequence[str]) -> bool:
    first = words[1] if len(words) > 1 else ""
    short = [first, *(w for w in words[2:] if re.match(r"-[a-zA-Z]", w))]
    longs = ("--c", "--app", "--u", "--a")
    return any(re.match(r"-?[a-zA-Z]*[cruA]", w) for w in short if not w.startswith("--")) or any(
        w.startswith(longs) for w in words
    )


def _inner_program(words: Sequence[str], program: str) -> int:
    """The index of the program that a wrapper runs; the number of words if it is unclear."""
    with_value = _WRAPPERS[program].split()
    left = _BEFORE_PROGRAM.get(program, 0)
    index = 1
    while index < len(words):
        word = words[index]
        if word in ("-S", "--split-string") or word.startswith(("--split", "-S")):
            return len(words)
        if word in with_value:
            index += 1
        elif not word.startswith("-") and not (program in ("env", "sudo") and "=" in word):
            if left == 0:
                return index
            left -= 1
        index += 1
    return len(words)


def _is_one_of(word: str, options: Sequence[str]) -> bool:
    """Whether a word is one of the options: abbreviated, in a cluster or with a value."""
    head = word.partition("=")[0]
    if word.startswith("--"):
        longs = [option for option in options if option.startswith("--")]
        return len(head) > len("--") and any(option.startswith(head) for option in longs)
    if not word.startswith("-") or head in options:
        return head in options
    short_names = [option[1] for option in options if re.fullmatch(r"-[A-Za-z@]", option)]
    return any(letter in word[1:] for letter in short_names)
