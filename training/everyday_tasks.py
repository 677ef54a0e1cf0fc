"""Requests of everyday work, only in training: parts of files, places, files by name, sizes."""

from training import results
from training.dialogue import Scene
from training.file_tasks import LANGUAGES, spaced
from training.task import Style, Task, ask, shown
from training.words import EXTENSIONS


def list_up(s: Scene, style: Style = Style.ALONE) -> Task:
    """List the parent folder, or the user's home."""
    intent, path = s.rng.choice([("list_up", ".."), ("list_home", "~")])
    return Task("list_directory", ask(s, intent, style), {"path": path}, f"list {path}",
                lambda: results.listing(s.words, long=s.long), path)  # fmt: skip


def read_range(s: Scene, style: Style = Style.ALONE) -> Task:
    """Read the lines from one number to another."""
    rng, path = s.rng, spaced(s.words)
    first = rng.choice([1, rng.randint(1, 30) * 5, rng.randint(1, 40) * 10, rng.randint(1, 500)])
    size = rng.choice([5, 10, 10, 20, 50, rng.randint(1, 30)])
    last = first + size - rng.choice([0, 1])
    limit = last - first + 1
    args: dict[str, object] = {"path": path, "offset": first, "limit": limit}
    text = ask(s, "read_range", style, p=shown(rng, path), m=str(first), n=str(last))
    return Task("read_file", text, args, f"read {path}",
                lambda: results.text(s.words, first, limit, long=s.long), path)  # fmt: skip


def read_tail(s: Scene, style: Style = Style.ALONE) -> Task:
    """Read the last lines of a file: a shell command does it."""
    rng, path = s.rng, s.words.path()
    count = rng.choice([5, 10, 20, 50, 100, rng.randint(1, 99)])
    line = f"tail -n {count} {path}"
    return Task("execute_command", ask(s, "read_tail", style, p=shown(rng, path), n=str(count)),
                {"command": line}, f"run {line}",
                lambda: "\n".join(s.words.lines(min(count, rng.randint(1, 9)))), path)  # fmt: skip


def size(s: Scene, style: Style = Style.ALONE) -> Task:
    """How big a file is: a shell command tells."""
    rng, path = s.rng, s.words.path()
    line = f"du -h {path}"
    return Task("execute_command", ask(s, "size", style, p=shown(rng, path)), {"command": line},
                f"run {line}", lambda: f"{rng.randint(1, 999)}{rng.choice('KMG')}\t{path}",
                path)  # fmt: skip


def find_file(s: Scene, style: Style = Style.ALONE) -> Task:
    """Where a file of this name is."""
    name = s.words.filename()
    pattern = f"**/{name}"
    return Task("glob", ask(s, "find_file", style, f=shown(s.rng, name)), {"pattern": pattern},
                f"find {pattern}", lambda: results.paths(s.words, long=s.long))  # fmt: skip


def glob_ext_in(s: Scene, style: Style = Style.ALONE) -> Task:
    """All files with an ending inside a folder."""
    rng, folder = s.rng, s.words.folder()
    ext = rng.choice(EXTENSIONS)
    said = rng.choice([f".{ext}", f".{ext}", ext])
    if rng.random() < 0.3:
        said, ext = rng.choice(list(LANGUAGES.items()))
    args: dict[str, object] = {"pattern": f"**/*.{ext}", "path": folder}
    return Task("glob", ask(s, "glob_ext_in", style, e=said, d=shown(rng, folder)), args,
                f"find {ext} files", lambda: results.paths(s.words, long=s.long))  # fmt: skip
