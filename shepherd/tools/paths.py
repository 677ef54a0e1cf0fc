"""Resolved paths, and globs: `*` and `?` in a name, `**` across directories, `[a-z]`, `{a,b}`."""

import os
import re
from functools import lru_cache
from pathlib import Path

from shepherd.errors import ToolError

_MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"(?<!\[)\{([^{}]*,[^{}]*)\}")


def expand_home(text: str) -> str:
    """Any word as a shell reads a `~` at its start; a `Path` would also normalize the rest."""
    return os.path.expanduser(text)  # noqa: PTH111 - see above


@lru_cache(maxsize=2048)
def glob_regex(pattern: str) -> str:
    """The regular expression of a `/`-separated glob; `dir/**` matches `dir` itself as well."""
    return "|".join(_one_regex(part) for part in expand_braces(pattern))


def expand_braces(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`; an unbalanced brace is a plain character."""
    pending, expanded = [pattern], list[str]()
    while pending:  # a stack, so that the alternatives keep their order
        current = pending.pop()
        match = _BRACES.search(current)
        if match is None or len(pending) + len(expanded) >= _MAX_ALTERNATIVES:
            expanded.append(current)
            continue
        head, tail = current[: match.start()], current[match.end() :]
        pending.extend(head + part + tail for part in reversed(match[1].split(",")))
    return expanded


@lru_cache(maxsize=2048)
def has_open_braces(pattern: str) -> bool:
    """Whether a glob has more alternatives than are expanded."""
    return any(_BRACES.search(part) for part in expand_braces(pattern))


def escape_glob(text: str) -> str:
    """A glob that matches `text` and nothing else."""
    return re.sub(r"([*?\[{])", r"[\1]", text)


def has_magic(text: str) -> bool:
    """Whether `text` has any wildcard."""
    return any(c in text for c in "*?[")


def _one_regex(pattern: str) -> str:
    """The expression of a glob without braces: `a/**/b` also matches `a/b`."""
    # `**/**` means the same as `**`, and its expression would take quadratic time
    parts = re.sub(r"(^|/)\*\*(?:/\*\*)+(?=/|$)", r"\1**", pattern).split("/")
    regex = ""
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            if not is_last:
                regex += "(?:[^/]+/)*"
            elif regex.endswith("/"):
                regex = regex[:-1] + "(?:/.*)?"  # `a/**` also matches `a`
            else:
                regex += ".*"
        else:
            regex += _name_regex(part) + ("" if is_last else "/")
    return f"(?:{regex})"


def _name_regex(name: str) -> str:
    """The expression of a glob for one name: no wildcard in it matches a slash."""
    regex, index = "", 0
    while index < len(name):
        char = name[index]
        index += 1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "[" and (end := name.find("]", index + 1)) != -1:
            regex += _class_regex(name[index:end])
            index = end + 1
        else:
            regex += re.escape(char)
    return regex


def _class_regex(body: str) -> str:
    """The expression of `[body]`; one that is no class stands for its own characters."""
    is_negated = body[:1] in ("!", "^")
    chars = body[1:] if is_negated else body
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", chars)
    try:
        re.compile(f"[{escaped}]")
    except re.error:
        return re.escape(f"[{body}]")
    return f"(?!/)[{'^' if is_negated else ''}{escaped}]"


def resolve_path(text: str, cwd: Path) -> Path:
    """`text` as an absolute path with `~`, `..` and every symlink followed.

    Parts that do not exist yet are appended unchanged. Raises ToolError.
    """
    if not text or "\0" in text:
        raise ToolError("the path is empty" if not text else "the path has a NUL character")
    try:
        return Path(os.path.realpath(Path(cwd, expand_home(text))))
    except (OSError, ValueError) as error:
        raise ToolError(f"bad path: {text} ({reason(error)})") from error


def reason(error: Exception) -> str:
    """A short cause without the path, which the caller adds."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
