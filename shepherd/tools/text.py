"""Text that is suitable for a model: valid, without terminal control codes, limited in length."""

import os
import re
import secrets
from pathlib import Path
from typing import Any, cast

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def pluralize(number: int, noun: str, format: str = "") -> str:
    """`1 message`, `2 messages`; `format` is the format of the number."""
    return f"{number:{format}} {noun if number == 1 else f'{noun}s'}"


def valid_text(text: str) -> str:
    """`text` without lone surrogates, which UTF-8 can't encode."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def valid_json(value: Any) -> Any:
    """The JSON value with `valid_text` applied to all its strings."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list):
        return [valid_json(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {valid_text(key): valid_json(item) for key, item in items}
    return value


def plain_text(text: str) -> str:
    """`text` as in a log: without escape sequences, and with the last state of progress lines."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def one_line(name: str) -> str:
    """A file's name on one line: control characters are written as escapes."""
    return _NOT_ONE_LINE.sub(lambda m: m[0].encode("unicode_escape").decode(), name)


def cap_text(text: str, limit: int, spill_dir: Path) -> str:
    """`text` in about `limit` bytes: head, tail, and the path of a file with the full text."""
    data = text.encode()
    if len(data) <= limit:
        return text
    head, tail = data[: limit * 2 // 3], data[len(data) - limit // 3 :]
    file = new_spill_file(spill_dir)
    with os.fdopen(file[0], "wb") as stream:
        stream.write(data)
    return join_cut(head, tail, len(data) - len(head) - len(tail), file[1])


def join_cut(head: bytes, tail: bytes, missing: int, spilled: Path) -> str:
    """Head and tail of a long text, with a line about the missing part between them."""
    note = f"[{missing} bytes cut here; all of it is in {spilled}]"
    before = head.decode("utf-8", "ignore").rstrip("\n")
    after = tail.decode("utf-8", "replace").lstrip("\ufffd").lstrip("\n")
    return f"{before}\n{note}\n{after}"


def new_spill_file(spill_dir: Path) -> tuple[int, Path]:
    """A new file that only the user can read, opened for writing: descriptor and path."""
    spill_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = spill_dir / f"output-{secrets.token_hex(6)}.txt"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600), path
