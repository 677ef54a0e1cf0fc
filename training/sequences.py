"""Scenes of two steps in one request."""

from dataclasses import replace

from training import results, tasks
from training.dialogue import Scene
from training.joints import (
    BOTH,
    DELETE_VERBS,
    FIRST_ENTRY,
    HELD_BOTH,
    HELD_THEN,
    MORE_DELETE_VERBS,
    MORE_FIRST_ENTRY,
    MORE_READ_BACK,
    MORE_READ_VERBS,
    MORE_RUN_IT,
    READ_BACK,
    READ_VERBS,
    RUN_IT,
    STARTS,
    THEN,
)
from training.phrasing import expand
from training.steps import RUNNERS, close, make, no_tool, perform, unable
from training.task import Maker, Style, Task, ask, shown
from training.words import join

EARLY_FAILURES = (0.15, 0.15)  # in training, of the first step; the second one is done all the same

PAIRS: dict[Maker, float] = {
    tasks.list_here: 1, tasks.list_folder: 2, tasks.read: 4, tasks.write: 2, tasks.edit: 1.5,
    tasks.delete: 1.5, tasks.glob: 1, tasks.grep: 1.5, tasks.time: 0.5, tasks.date: 0.5,
    tasks.run: 1, tasks.fetch: 0.5,
}  # fmt: skip


def double(s: Scene) -> None:
    """Two tasks in one request, done one after the other."""
    rng = s.rng
    tasks_ = [make(s, Style.JOINED, PAIRS), make(s, Style.JOINED, PAIRS)]
    if any(s.tool(task.kind) is None for task in tasks_):
        return
    if rng.random() < 0.3:
        tasks_ = _same(s)
        then = rng.choice(HELD_BOTH if s.held else BOTH)
        _sequence(s, tasks_[0].text + then + tasks_[1].text, tasks_)
        return
    _sequence(s, joined(s, tasks_[0].text, tasks_[1].text), tasks_)


def _said(s: Scene, known: str, more: tuple[str, ...]) -> str:
    """The second step; in training in more ways."""
    return expand(s.rng, known if s.held else s.rng.choice((known, known, *more)))


def _capital(text: str) -> str:
    """The text with a capital, unless it starts with a value that must stay as it is."""
    return text[0].upper() + text[1:] if text.split()[0].isalpha() else text


def joined(s: Scene, first: str, second: str) -> str:
    """Two requests as one."""
    rng = s.rng
    then = rng.choice(HELD_THEN if s.held else THEN)
    if then in (". ", "\n") and rng.random() < 0.6:
        second = _capital(second)
    if not s.held and rng.random() < 0.08:
        first = rng.choice(["first ", "first, ", "first of all "]) + first
    text = first + then + second
    if rng.random() < 0.15:
        held = ["please ", "can you ", "could you ", "now ", "ok, "]
        text = rng.choice(held if s.held else STARTS) + text
    if rng.random() < 0.3:
        text = _capital(text)
    return text + rng.choice(["", "", "", "", "", " please"])


def _same(s: Scene) -> list[Task]:
    """Two files in one request: "read a and b"; the joint text stands in the first task."""
    reads, deletes = READ_VERBS, DELETE_VERBS
    if not s.held:
        reads, deletes = reads + MORE_READ_VERBS, deletes + MORE_DELETE_VERBS
    verb, make = s.rng.choice([*((verb, tasks.read) for verb in reads),
                               *((verb, tasks.delete) for verb in deletes)])  # fmt: skip
    first, second = make(s, Style.JOINED), make(s, Style.JOINED)
    return [replace(first, text=f"{verb} {shown(s.rng, first.path)}"),
            replace(second, text=shown(s.rng, second.path))]  # fmt: skip


def _sequence(s: Scene, text: str, steps: list[Task], *, dependent: bool = False) -> None:
    if any(unable(s, task) for task in steps):
        return
    missing = any(s.tool(task.kind) is None for task in steps)
    if missing and s.rng.random() < 0.9:
        return
    s.user(text)
    if missing:
        no_tool(s)
        return
    done: list[tuple[Task, str]] = []
    for i, task in enumerate(steps):
        early = not (s.held or i or dependent)
        label = "call second of two" if i else "call first of two"
        result = perform(s, task, label, *(EARLY_FAILURES if early else ()))
        if result is None:
            no_tool(s)
            return
        done.append((task, result))
        if dependent and result.startswith("Error: "):
            break
    close(s, done, "answer two")
    s.file = ""


def write_then(s: Scene) -> None:
    """ "Write it, then read it" or run it: the second step stands on the first."""
    first = tasks.write(s, Style.JOINED)
    ending = first.path.rsplit(".", 1)[-1]
    if ending in RUNNERS and s.rng.random() < 0.7:
        line = f"{RUNNERS[ending]} {first.path}"
        second = Task("execute_command", _said(s, RUN_IT, MORE_RUN_IT), {"command": line},
                      f"run {line}", lambda: results.output(s.words, long=s.long))  # fmt: skip
    else:
        said = _said(s, READ_BACK, MORE_READ_BACK)
        shown = str(first.args["content"]) or "(empty file)"
        second = Task("read_file", said, {"path": first.path}, f"read {first.path}",
                      lambda: shown, first.path)  # fmt: skip
    _sequence(s, joined(s, first.text, second.text), [first, second], dependent=True)


IT: dict[Maker, float] = {tasks.read: 4, tasks.write: 2, tasks.edit: 3}


def then_it(s: Scene) -> None:
    """ "Read a.txt and then delete it": the second step names the file by a pronoun."""
    rng = s.rng
    first = rng.choices(list(IT), list(IT.values()))[0](s, Style.JOINED)
    if first.kind == "edit_file" and rng.random() < 0.5:
        second = Task("read_file", ask(s, "it_read", Style.JOINED), {"path": first.path},
                      f"read {first.path}", lambda: results.text(s.words, long=False),
                      first.path)  # fmt: skip
    else:
        second = Task("delete_file", ask(s, "it_delete", Style.JOINED), {"path": first.path},
                      f"delete {first.path}", lambda: f"Deleted {first.path}",
                      first.path)  # fmt: skip
    _sequence(s, joined(s, first.text, second.text), [first, second], dependent=True)


def list_then_named(s: Scene) -> None:
    """ "List src and read main.py": the listing tells where the named file is."""
    rng = s.rng
    folder = (tasks.list_folder if rng.random() < 0.5 else tasks.list_here)(s, Style.JOINED)
    names = s.words.entries(rng.randint(1, 8))
    files = [name for name in names if not name.endswith("/")]
    if not files:
        return
    name = rng.choice(files)
    path = name if folder.path == "." else join(folder.path, name)
    listing = "\n".join(names)
    first = replace(folder, answer=lambda: listing)
    named = tasks.read(s, Style.JOINED)
    second = replace(named, text=named.text.replace(named.path, name), args={"path": path},
                     want=f"read {path}", path=path)  # fmt: skip
    _sequence(s, joined(s, first.text, second.text), [first, second], dependent=True)


def list_then_read(s: Scene) -> None:
    """ "List src and read the first file"."""
    folder = (
        tasks.list_folder(s, Style.JOINED)
        if s.rng.random() < 0.7
        else tasks.list_here(s, Style.JOINED)
    )
    names = s.words.entries(s.rng.randint(2, 6))
    files = [name for name in names if not name.endswith("/")]
    if not files or names[0].endswith("/"):
        return
    path = files[0] if folder.path == "." else join(folder.path, files[0])
    listing = "\n".join(names)
    first = Task(folder.kind, folder.text, folder.args, folder.want, lambda: listing,
                 folder.path)  # fmt: skip
    said = _said(s, FIRST_ENTRY, MORE_FIRST_ENTRY)
    second = Task("read_file", said, {"path": path}, f"read {path}",
                  lambda: results.text(s.words, long=False), path)  # fmt: skip
    _sequence(s, joined(s, first.text, said), [first, second], dependent=True)
