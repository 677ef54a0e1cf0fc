"""One request that one tool call fulfils: its text, the call, and what the tool may answer."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from training import lists, results
from training.dialogue import Scene
from training.phrasing import fill, load
from training.words import EXTENSIONS, Words, join

REQUESTS = load("requests")
LANGUAGES = {"python": "py", "Python": "py", "markdown": "md", "text": "txt", "javascript": "js",
             "shell": "sh", "json": "json", "yaml": "yaml", "rust": "rs", "html": "html",
             "log": "log", "java": "java", "csv": "csv", "C": "c", "typescript": "ts"}  # fmt: skip


class Style(Enum):
    """Whether a request stands alone, or is joined with another by "and"."""

    ALONE = auto()
    JOINED = auto()


@dataclass(frozen=True)
class Task:
    """A request and its one call; `path` is the file or folder that it is about."""

    kind: str
    text: str
    args: dict[str, object]
    want: str
    answer: Callable[[], str]  # the tool's result
    path: str = ""


Maker = Callable[[Scene, Style], Task]


def ask(s: Scene, intent: str, style: Style = Style.ALONE, **values: str) -> str:
    """A request with this intent."""
    phrases = REQUESTS[intent]
    say = phrases.bare if style is Style.JOINED else phrases.pick
    return fill(say(s.rng, held=s.held), **values)


def shown(rng: random.Random, path: str) -> str:
    """A path as users type it: quoted now and then, always if it has spaces."""
    if rng.random() < 0.08 or " " in path:
        quote = rng.choice("`'\"")
        return f"{quote}{path}{quote}"
    return path


def spaced(words: Words) -> str:
    """A file's path; one of forty has a space in its name."""
    path = words.path()
    if words.rng.random() < 0.025 and "/" not in path:
        return f"{words.word()} {path}"
    return path


def quoted(rng: random.Random, text: str) -> str:
    """A text in quotes that it does not contain."""
    marks = [mark for mark in "'\"`" if mark not in text]
    mark = rng.choice(marks[:2]) if rng.random() < 0.9 else marks[-1]
    return mark + text + mark


CODE = (
    lambda w: f"print('{w.words(1, 3)}')",
    lambda w: f'console.log("{w.word()}");',
    lambda w: f"x = {w.rng.randint(0, 99)}",
    lambda w: f'{{"{w.word()}": {w.rng.randint(0, 99)}}}',
    lambda w: f"<p>{w.words(1, 3)}</p>",
    lambda w: f"# {w.words(1, 3).capitalize()}",
    lambda w: f"- {w.words(1, 3)}",
    lambda w: f"{w.word()}: {w.word()}",
    lambda w: f"import {w.word()}",
    lambda w: f"echo {w.words(1, 2)}",
    lambda w: str(w.rng.randint(0, 9999)),
    lambda w: f"{w.rng.randint(0, 9)}.{w.rng.randint(0, 20)}.{w.rng.randint(0, 9)}",
    lambda w: f"{w.word()} {w.rng.randint(0, 99)}",
    lambda w: w.words(1, 2).upper(),
)


def stem(path: str) -> str:
    """A file's name without its folder and ending."""
    return path.rsplit("/", 1)[-1].split(".")[0]


def content(words: Words) -> str:
    """A text to be written to a file."""
    rng = words.rng
    kinds: tuple[tuple[float, Callable[[], str]], ...] = (
        (0.12, lambda: rng.choice(CODE)(words)),
        (0.33, lambda: words.words(1, 6)),
        (0.15, words.sentence),
        (0.1, lambda: f"{words.word().capitalize()}, {words.words(1, 3)}!"),
        (0.08, lambda: f"{words.name()} = {rng.randint(0, 999)}"),
        (0.06, lambda: f'print("{words.words(1, 3)}")'),
        (0.06, lambda: f"see {words.path()} and {words.filename()}"),
        (0.03, lambda: words.word() + rng.choice("éüñçøßä") + words.word()),
        (0.07, lambda: words.line().strip().replace("`", "").replace("'", "") or words.word()),
    )
    return rng.choices([make for _, make in kinds], [share for share, _ in kinds])[0]()


def list_here(s: Scene, style: Style = Style.ALONE) -> Task:
    """List the current directory: no arguments."""
    return Task("list_directory", ask(s, "list_here", style), {},
                "see the current directory",
                lambda: results.listing(s.words, long=s.long), ".")  # fmt: skip


def list_folder(s: Scene, style: Style = Style.ALONE) -> Task:
    """List a folder."""
    path = "." if s.rng.random() < 0.04 else s.words.folder()
    return Task("list_directory", ask(s, "list", style, p=shown(s.rng, path)),
                {"path": path}, f"list {path}",
                lambda: results.listing(s.words, long=s.long), path)  # fmt: skip


def read(s: Scene, style: Style = Style.ALONE) -> Task:
    """Read a whole file."""
    path = spaced(s.words)
    return Task("read_file", ask(s, "read", style, p=shown(s.rng, path)), {"path": path},
                f"read {path}", lambda: results.text(s.words, long=s.long), path)  # fmt: skip


def read_part(s: Scene, style: Style = Style.ALONE) -> Task:
    """Read some lines of a file."""
    path = spaced(s.words)
    rng = s.rng
    limit, first = rng.randint(1, 100), rng.randint(2, 999)
    kind = rng.randrange(3)
    intent = ("read_head", "read_from", "read_part")[kind]
    if kind == 0:
        args: dict[str, object] = {"path": path, "limit": limit}
    elif kind == 1:
        args = {"path": path, "offset": first}
    else:
        args = {"path": path, "offset": first, "limit": limit}
    start = 1 if kind == 0 else first
    most = None if kind == 1 else limit
    text = ask(s, intent, style, p=shown(rng, path), n=str(limit), m=str(first))
    return Task("read_file", text, args, f"read {path}",
                lambda: results.text(s.words, start, most, long=s.long), path)  # fmt: skip


def write(s: Scene, style: Style = Style.ALONE) -> Task:
    """Write a text to a file."""
    path = spaced(s.words)
    rng = s.rng
    kind = rng.random()
    if kind < 0.08:
        text = ""
        said = ask(s, "write_empty", style, p=shown(rng, path))
    elif kind < 0.2 and style is Style.ALONE:
        text = "\n".join(s.words.line() for _ in range(rng.randint(1, 5)))
        said = ask(s, "write_block", style, p=shown(rng, path)) + "\n" + text
    elif kind < 0.36:
        text = s.words.words(1, 4)
        if rng.random() < 0.12 and stem(path).isalpha():
            text = stem(path)
        said = ask(s, "write_plain", style, p=shown(rng, path), c=text)
    else:
        text = content(s.words)
        said = ask(s, "write", style, p=shown(rng, path), c=quoted(rng, text))
    size = len(text.encode())
    return Task("write_file", said, {"path": path, "content": text}, f"write {path}",
                lambda: f"Wrote {size} bytes to {path}", path)  # fmt: skip


def changed(words: Words, text: str) -> str:
    """The text with one of its words or numbers replaced."""
    parts = re.findall(r"\w+|\W+", text)
    at = words.rng.choice([i for i, part in enumerate(parts) if part[0].isalnum()] or [0])
    number = parts[at].isdecimal()
    parts[at] = str(words.rng.randint(0, 99)) if number else words.word()
    return "".join(parts)


def edit(s: Scene, style: Style = Style.ALONE) -> Task:
    """Replace a text in a file."""
    path = spaced(s.words)
    rng = s.rng
    old, new = (s.words.words(1, 3) if rng.random() < 0.7 else content(s.words) for _ in range(2))
    if rng.random() < 0.08 and stem(path).isalpha():
        old = stem(path)
    if rng.random() < 0.08:
        old = rng.choice("xyzabcnik")
    if rng.random() < 0.2:
        old = old if rng.random() < 0.5 else rng.choice(CODE)(s.words)
        new = changed(s.words, old)
    plain = " " not in old and " " not in new and old.isalpha() and new.isalpha()
    everywhere = rng.random() < 0.25
    marks = (old, new) if plain and rng.random() < 0.7 else (quoted(rng, old), quoted(rng, new))
    intent = "edit_all" if everywhere else "edit"
    text = ask(s, intent, style, a=marks[0], b=marks[1], p=shown(rng, path))
    args: dict[str, object] = {"path": path, "old_string": old, "new_string": new}
    if everywhere:
        args["replace_all"] = True
    return Task("edit_file", text, args, f"edit {path}",
                lambda: _edited(rng, path, everywhere=everywhere), path)  # fmt: skip


def _edited(rng: random.Random, path: str, *, everywhere: bool) -> str:
    kind = rng.random()
    if kind < 0.12:
        return f"Error: old_string not found in {path}"
    if kind < 0.18:
        return (f"Error: old_string occurs {rng.randint(2, 30)} times in {path}; "
                "give more context or set replace_all")  # fmt: skip
    times = rng.randint(2, 40) if everywhere else 1
    said = f"Edited {path}: {times} replacement" + ("s" if times > 1 else "")
    return said + (" (matched ignoring whitespace)" if rng.random() < 0.1 else "")


def delete(s: Scene, style: Style = Style.ALONE) -> Task:
    """Delete a file."""
    path = spaced(s.words)
    return Task("delete_file", ask(s, "delete", style, p=shown(s.rng, path)),
                {"path": path}, f"delete {path}", lambda: f"Deleted {path}", path)  # fmt: skip


def glob(s: Scene, style: Style = Style.ALONE) -> Task:
    """Find files by pattern."""
    rng, words = s.rng, s.words
    ext = rng.choice(EXTENSIONS)
    kind = rng.random()
    if kind < 0.25:
        language, of_language = rng.choice(list(LANGUAGES.items()))
        named = kind < 0.1
        pattern = f"**/*.{of_language if named else ext}"
        text = ask(s, "glob_ext", style, e=language if named else f".{ext}")
        args: dict[str, object] = {"pattern": pattern}
    else:
        pattern = rng.choice([f"*.{ext}", f"**/*.{ext}", f"{words.word()}*", f"*{words.word()}*",
                              f"{words.word()}*.{ext}", f"{words.name()}/*.{ext}",
                              f"*.{words.word()}.{ext}", f"*_{words.word()}.{ext}",
                              f"{words.word()}_*.{ext}", f"**/{words.filename()}",
                              f"{words.word()}/**/*.{ext}", f"{words.word()}?.{ext}",
                              f"*.{{{ext},{rng.choice(EXTENSIONS)}}}"])  # fmt: skip
        args = {"pattern": pattern}
        if kind < 0.5:
            folder = args["path"] = words.folder()
            text = ask(s, "glob_in", style, g=shown(rng, pattern), d=folder)
        else:
            text = ask(s, "glob", style, g=shown(rng, pattern))
    return Task("glob", text, args, f"find {pattern}", lambda: results.paths(words, long=s.long))


def grep(s: Scene, style: Style = Style.ALONE) -> Task:
    """Search for a text in files."""
    rng, words = s.rng, s.words
    wanted = words.name() if rng.random() < 0.75 else words.words(2, 3)
    if rng.random() < 0.07:
        wanted = rng.choice(
            [f"def {words.word()}", f"^{words.word()}", f"{words.word()}.*", "TODO"]
        )
    bare_word = wanted.replace("_", "").replace("-", "").isalnum() and rng.random() < 0.7
    said = wanted if bare_word else quoted(rng, wanted)
    args: dict[str, object] = {"pattern": wanted}
    kind = rng.random()
    file = None
    if kind < 0.4:
        text = ask(s, "grep", style, w=said)
    elif kind < 0.8:
        where = words.folder()
        if rng.random() < 0.4:
            where = file = words.path()
        args["path"] = where
        text = ask(s, "grep_in", style, w=said, d=shown(rng, where))
    else:
        args["glob"] = f"*.{rng.choice(EXTENSIONS)}"
        text = ask(s, "grep_glob", style, w=said, g=str(args["glob"]))
    if rng.random() < 0.02:
        reason = f"Error: bad pattern: {words.words(1, 4)}"
        return Task("grep", text, args, f"search for {wanted}", lambda: reason)
    return Task("grep", text, args, f"search for {wanted}",
                lambda: results.matches(words, wanted, file, long=s.long))  # fmt: skip


def command(words: Words) -> str:
    """A shell command."""
    rng = words.rng
    text = rng.choice(lists.sections("texts")["commands"]).replace("{p}", "|")
    for key, make in (
        ("{w}", words.word),
        ("{f}", words.filename),
        ("{d}", words.folder),
        ("{u}", words.url),
        ("{n}", lambda: str(rng.randint(1, 500))),
        ("{e}", lambda: rng.choice(EXTENSIONS)),
        ("{l}", lambda: rng.choice("abcdefrstvx")),
    ):
        while key in text:
            text = text.replace(key, make(), 1)
    return text


def _typed(line: str) -> bool:
    """Whether a message of just this line can only mean the command."""
    if line in ("ls -la", "pwd", "whoami"):
        return True
    return " " in line and not line.startswith(("ls ", "cat ", "grep ", "rm "))


def run(s: Scene, style: Style = Style.ALONE) -> Task:
    """Run a command."""
    rng = s.rng
    line = command(s.words)
    args: dict[str, object] = {"command": line}
    kind = rng.random()
    plain = kind <= 0.8 and style is Style.ALONE
    said = line if plain and rng.random() < 0.65 else f"`{line}`"
    if kind > 0.9:
        args["cwd"] = s.words.folder()
        text = ask(s, "run_in", style, x=said, d=str(args["cwd"]))
    elif kind > 0.8:
        args["timeout"] = rng.randint(1, 600)
        text = ask(s, "run_timeout", style, x=said, n=str(args["timeout"]))
    elif kind < 0.06 and style is Style.ALONE and _typed(line):
        text = line
    else:
        text = ask(s, "run", style, x=said)
    if rng.random() < 0.04:
        missing = f"Error: command not found: {line.split()[0]}"
        return Task("execute_command", text, args, f"run {line}", lambda: missing)
    return Task("execute_command", text, args, f"run {line}",
                lambda: results.output(s.words, long=s.long))  # fmt: skip


def shell(s: Scene, style: Style = Style.ALONE) -> Task:
    """Rename, copy, make a folder: a shell command does it."""
    rng, words = s.rng, s.words
    old, new, folder = words.path(), words.path(), words.folder()
    intent, line = rng.choice([("move", f"mv {old} {new}"), ("copy", f"cp {old} {new}"),
                               ("make_folder", f"mkdir -p {folder}")])  # fmt: skip
    text = ask(s, intent, style, p=shown(rng, old), q=shown(rng, new), d=shown(rng, folder))
    failure = f"[stderr]\n{line.split()[0]}: {words.words(1, 4)}\n[exit code 1]"
    result = "(no output)" if rng.random() < 0.8 else failure
    return Task("execute_command", text, {"command": line}, f"run {line}", lambda: result)


def fetch(s: Scene, style: Style = Style.ALONE) -> Task:
    """Fetch a page."""
    url = s.words.url()
    return Task("http_get", ask(s, "fetch", style, u=url), {"url": url}, f"fetch {url}",
                lambda: results.page(s.words, long=s.long), url)  # fmt: skip


def send(s: Scene, style: Style = Style.ALONE) -> Task:
    """Send another request than GET."""
    rng = s.rng
    url = s.words.url()
    method = rng.choice(["POST", "PUT", "DELETE", "PATCH", "HEAD"])
    args: dict[str, object] = {"method": method, "url": url}
    if method in ("POST", "PUT", "PATCH") and rng.random() < 0.7:
        body = content(s.words)
        if rng.random() < 0.3:
            body = f'{{"{s.words.word()}": "{s.words.word()}"}}'
        args["body"] = body
        text = ask(s, "send_body", style, m=method, u=url, c=quoted(rng, body))
    else:
        text = ask(s, "send", style, m=method, u=url)
    return Task("http_request", text, args, f"send a {method} request to {url}",
                lambda: results.page(s.words, long=s.long), url)  # fmt: skip


def time(s: Scene, style: Style = Style.ALONE) -> Task:
    """Ask for the time."""
    return Task("get_time", ask(s, "time", style), {}, "know the time",
                lambda: results.clock(s.rng))  # fmt: skip


def date(s: Scene, style: Style = Style.ALONE) -> Task:
    """Ask for the date."""
    return Task("get_date", ask(s, "date", style), {}, "know the date",
                lambda: results.calendar(s.rng))  # fmt: skip


def variable(s: Scene, style: Style = Style.ALONE) -> Task:
    """Ask for an environment variable."""
    rng, words = s.rng, s.words
    name = "_".join(words.word() for _ in range(rng.choice([1, 2, 2]))).upper()
    if not s.held and rng.random() < 0.4:
        name = rng.choice(lists.words("variables"))
    unset = f"Error: environment variable {name} is not set"
    value = rng.choice([words.folder(), words.word(), str(rng.randint(0, 9999)), words.url(),
                        join(words.folder(), words.name())])  # fmt: skip
    missing = rng.random() < 0.2
    return Task("get_environment_variable", ask(s, "env", style, v=name), {"name": name},
                f"know {name}", lambda: unset if missing else value)  # fmt: skip


# How often each task is asked for in held-out dialogues; in training the weak ones more often.
MAKERS: dict[Maker, float] = {
    list_here: 2.5, list_folder: 4, read: 5, read_part: 2, write: 4, edit: 3.5, delete: 2,
    glob: 3, grep: 4, run: 4, shell: 1.2, fetch: 1.5, send: 1.2, time: 1, date: 1, variable: 1.3,
}  # fmt: skip
PRACTICE: dict[Maker, float] = MAKERS | {read: 6, write: 6, edit: 7, grep: 5, glob: 3.5, send: 1.6}
