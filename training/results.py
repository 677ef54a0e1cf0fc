"""What the tools answer, in Shepherd's exact words."""

import random

from training import lists
from training.answers import REMINDER
from training.words import Words, join

DENIALS = (
    "Error: denied by the user",
    "Error: denied: approval needed and no terminal to ask",
    "Error: interrupted by the user",
)
COUNTS = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 7, 9, 10, 12]


def count(rng: random.Random, *, long: bool) -> int:
    """How many lines a result has."""
    if long and rng.random() < 0.35:
        return rng.randint(15, 120)
    return rng.choice(COUNTS)


def refusal(words: Words, tool: str) -> str:
    """An error that any tool may give."""
    rng = words.rng
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(DENIALS)
    if kind < 0.85:
        rule = rng.choice([f"{tool} {words.folder()}/**", f"{tool} *", f"{tool}({words.path()})",
                           "secrets", f"{words.word()} {words.word()}"])  # fmt: skip
        return f"Error: denied by rule: {rule}"
    return f"Error: bad arguments for {tool}: {words.words(1, 4)}"


def path_error(words: Words, tool: str, path: str) -> str:
    """An error about a path, as `tool` would give it."""
    rng = words.rng
    if tool == "list_directory":
        return rng.choice([f"Error: no such directory: {path}", f"Error: not a directory: {path}"])
    choices = [f"Error: no such file: {path}", f"Error: is a directory: {path}"]
    if tool == "read_file":
        choices += [choices[0], f"Error: binary file: {path} ({rng.randint(1, 99999)} bytes)"]
    if tool == "write_file":
        return choices[1]
    return rng.choice(choices)


def listing(words: Words, *, long: bool) -> str:
    """The result of `list_directory`."""
    if words.rng.random() < 0.07:
        return "(empty)"
    return "\n".join(words.entries(count(words.rng, long=long)))


def text(words: Words, first: int = 1, limit: int | None = None, *, long: bool) -> str:
    """The result of `read_file`; `first` and `limit` are what the call asked for."""
    rng = words.rng
    if rng.random() < 0.05:
        return "(empty file)"
    size = min(count(rng, long=long), limit or 10**9)
    lines = words.lines(size)
    if (limit == size and rng.random() < 0.7) or rng.random() < 0.06:
        last = first + size - 1
        lines.append(f"[lines {first}-{last} of {last + rng.randint(1, 900)}; "
                     f"read on with offset={last + 1}]")  # fmt: skip
    return "\n".join(lines)


def paths(words: Words, *, long: bool) -> str:
    """The result of `glob`."""
    rng = words.rng
    if rng.random() < 0.1:
        return "(no matches)"
    found = {
        words.filename() if rng.random() < 0.6 else join(words.name(), words.filename())
        for _ in range(count(rng, long=long))
    }
    return "\n".join(sorted(found))


def matches(words: Words, wanted: str, file: str | None = None, *, long: bool) -> str:
    """The result of `grep`."""
    rng = words.rng
    if rng.random() < 0.12:
        return "(no matches)"
    lines: list[str] = []
    number = 0
    name = file or words.filename()
    for _ in range(count(rng, long=long)):
        number += rng.randint(1, 40)
        if file is None and rng.random() < 0.4:
            name, number = words.path(), rng.randint(1, 400)
        lines.append(f"{name}:{number}: {words.around(wanted)}")
    return "\n".join(lines)


def output(words: Words, *, long: bool) -> str:
    """The result of `execute_command`."""
    rng = words.rng
    kind = rng.random()
    if kind < 0.08:
        return "(no output)"
    out = words.lines(count(rng, long=long))
    if kind < 0.14:
        out = [f"{rng.choice(['total', '-rw-r--r--', 'drwxr-xr-x'])} {rng.randint(1, 9999)} {line}"
               for line in words.entries(rng.randint(1, 6))]  # fmt: skip
    if kind > 0.72:
        failure = ["[stderr]", *words.lines(rng.randint(1, 3))]
        out = rng.choice([failure, failure, out + failure, out, ["(no output)"], []])
        if rng.random() < 0.8 or not out:
            code = rng.choice([1, 1, 2, 126, 127, rng.randint(1, 255)])
            exited = rng.random() < 0.75
            out.append(f"[exit code {code}]" if exited
                       else f"[timed out after {rng.randint(1, 300)} s]")  # fmt: skip
    return "\n".join(out)


def page(words: Words, *, long: bool) -> str:
    """The result of `http_get`."""
    rng = words.rng
    status = rng.choice([200, 200, 200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 500, 503])
    kind = rng.choice(["text/plain", "text/html", "application/json", "text/html; charset=utf-8"])
    head = f"HTTP {status} {kind}"
    if status == 204 or rng.random() < 0.05:
        return rng.choice([head, head + "\n\n"])
    style = rng.random()
    if style < 0.3:
        body = [f'{{"{words.word()}": "{words.word()}", "{words.word()}": {rng.randint(0, 999)}}}']
    elif style < 0.5:
        body = [f"<h1>{words.words(1, 3)}</h1>", f"<p>{words.sentence()}</p>"]
    else:
        body = words.lines(count(rng, long=long))
    if rng.random() < 0.05:
        body.append(f"[body cut at {rng.randint(1000, 99999)} bytes]")
    return "\n".join([head, "", *body])


def host_error(words: Words, url: str) -> str:
    """An error of the network tools."""
    host = url.split("/")[2].split(":")[0]
    reason = words.rng.choice(["timed out", "name not known", "connection refused", "bad gateway"])
    return words.rng.choice([f"Error: cannot reach {host}: {reason}",
                             f"Error: private address refused: {host}"])  # fmt: skip


def clock(rng: random.Random) -> str:
    """The result of `get_time`."""
    return (f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d} "
            f"{rng.choice(lists.words('time zones'))}")  # fmt: skip


def calendar(rng: random.Random) -> str:
    """The result of `get_date`."""
    return (f"20{rng.randint(20, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} "
            f"{rng.choice(lists.words('weekdays'))}")  # fmt: skip


def reminded(rng: random.Random, result: str) -> str:
    """The result, now and then with the loop's reminder behind it."""
    if rng.random() < 0.015:
        return result + "\n" + REMINDER.format(n=rng.randint(3, 4))
    return result
