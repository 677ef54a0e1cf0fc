"""Requests for commands, pages, the time and the environment."""

from training import lists, results
from training.contents import content
from training.dialogue import Scene
from training.task import Style, Task, ask, quoted, shown
from training.words import EXTENSIONS, Words, join

BETWEEN = (" && ", "; ", " || ", " | ")
ENDINGS = (" 2>&1", " 2>/dev/null", " >&2", "; exit {n}", " > {f}", " >> {f}", " &")
UNITS = {"lines": "l", "words": "w", "characters": "m", "bytes": "c"}


def command(words: Words) -> str:
    """A shell command; in training sometimes a line of several."""
    rng = words.rng
    known = lists.sections("texts")["commands"]
    text = rng.choice(known)
    if not words.held and rng.random() < 0.12:
        parts = [text, *rng.choices(known, k=rng.choice([0, 1, 1, 2]))]
        text = rng.choice(BETWEEN).join(parts)
        text += rng.choice(ENDINGS) if len(parts) == 1 or rng.random() < 0.3 else ""
    text = text.replace("{p}", "|")
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
    if not s.held and said != line:
        said = rng.choice([said, line, quoted(rng, line)])
    if kind > 0.9:
        args["cwd"] = s.words.folder()
        text = ask(s, "run_in", style, x=said, d=str(args["cwd"]))
    elif kind > 0.8:
        args["timeout"] = rng.randint(1, 600)
        text = ask(s, "run_timeout", style, x=said, n=str(args["timeout"]))
    elif kind < (0.06 if s.held else 0.15) and style is Style.ALONE and _typed(line):
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


def append(s: Scene, style: Style = Style.ALONE) -> Task:
    """Add a line to a file: a shell command does it."""
    rng, words = s.rng, s.words
    text, path = content(words), words.path()
    said = quoted(rng, text)
    if not s.held and rng.random() < 0.35:
        said = text = words.words(1, 4)
    mark = '"' if "'" in text else "'"
    line = f"echo {mark}{text}{mark} >> {path}"
    return Task("execute_command", ask(s, "append", style, c=said, p=shown(rng, path)),
                {"command": line}, f"run {line}", lambda: "(no output)", path)  # fmt: skip


def count(s: Scene, style: Style = Style.ALONE) -> Task:
    """How many lines or words a file has: a shell command counts them."""
    rng, path = s.rng, s.words.path()
    unit = rng.choices(list(UNITS), (6, 3, 1, 1))[0]
    line = f"wc -{UNITS[unit]} {path}"
    return Task("execute_command", ask(s, "count", style, u=unit, p=shown(rng, path)),
                {"command": line}, f"run {line}",
                lambda: f"{rng.randint(0, 9999)} {path}", path)  # fmt: skip


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
        said = body if not s.held and body[0] == "{" else quoted(rng, body)
        text = ask(s, "send_body", style, m=method, u=url, c=said)
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
