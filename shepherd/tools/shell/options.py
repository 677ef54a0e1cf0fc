"""Detects wildcards that a program could read as options instead of files."""

from collections.abc import Sequence

from shepherd.tools.shell.syntax import Word

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
        word.glob and not _is_file(word, program, behind=index > behind)
        for index, word in enumerate(words[1:], 1)
    )


def _is_file(word: Word, program: str, *, behind: bool) -> bool:
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
