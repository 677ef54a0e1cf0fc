"""Scenes with one call, and what users ask after it."""

from dataclasses import replace

from training import results, tasks
from training.answers import WHICH_FILE
from training.dialogue import Scene
from training.steps import RUNNERS, close, make, no_tool, perform, unable
from training.task import Style, Task, ask
from training.words import join

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
SHORT = ("1st", "2nd", "3rd", "4th", "5th", "6th")
NUMBERS = ("one", "two", "three", "four", "five", "six")


def listed(s: Scene) -> None:
    """A listing or a search, and then one of its entries."""
    if not s.tool("read_file"):
        return
    task = s.rng.choice((tasks.list_here, tasks.list_folder, tasks.glob))(s, Style.ALONE)
    if s.tool(task.kind) is None or unable(s, task):
        return
    s.user(task.text)
    result = perform(s, task, f"call {task.kind}", refuse=0) or ""
    close(s, [(task, result)], f"answer {task.kind}")
    if not result.startswith("Error: "):
        _after_entries(s, task, result)


def single(s: Scene) -> None:
    """One request, one call, one answer; sometimes a follow-up about the same file."""
    task = make(s)
    result = once(s, task)
    if result is None:
        return
    if s.rng.random() < (0.2 if result.startswith("Error: ") else 0.03):
        again(s, task)
        return
    if result.startswith("Error: "):
        return
    if task.kind in ("read_file", "list_directory", "delete_file") and s.rng.random() < 0.1:
        same(s, task)
        return
    if task.kind in ("read_file", "write_file", "edit_file"):
        s.file = task.path
        _after_file(s, task, result)
    elif s.rng.random() < 0.45:
        _after_entries(s, task, result)


def added(s: Scene) -> None:
    """A line is added to a file."""
    once(s, tasks.append(s, Style.ALONE))


def once(s: Scene, task: Task) -> str | None:
    """The request, its call, the answer; the result, or None if there was no call."""
    if unable(s, task):
        return None
    s.user(task.text)
    result = perform(s, task, f"call {task.kind}")
    if result is None:
        no_tool(s)
        return None
    close(s, [(task, result)], f"answer {task.kind}")
    return result


def _after_file(s: Scene, task: Task, result: str) -> None:
    last = result.split("\n")[-1]
    if task.kind == "read_file" and "read on with offset=" in last:
        if s.rng.random() < 0.7:
            _read_on(s, task.path, int(last.split("=")[-1].rstrip("]")))
        return
    if s.rng.random() < 0.45:
        follow_file(s)


def _read_on(s: Scene, path: str, line: int) -> None:
    tool = s.tool("read_file")
    if tool is None or tool.renamed:
        return
    task = Task("read_file", ask(s, "read_on"), {"path": path, "offset": line},
                f"read on in {path}",
                lambda: results.text(s.words, line, long=s.long), path)  # fmt: skip
    follow(s, task)


def again(s: Scene, task: Task) -> None:
    """The same call once more."""
    repeated = replace(task, text=ask(s, "again"))
    follow(s, repeated)


def same(s: Scene, task: Task) -> None:
    """ "And b.txt?": the same tool for another path."""
    makers = {"read_file": tasks.read, "delete_file": tasks.delete}
    other = makers.get(task.kind, tasks.list_folder)(s, Style.JOINED)
    follow(s, replace(other, text=ask(s, "same", p=other.path)))


def follow_file(s: Scene) -> None:
    """ "Now delete it": a request about the file spoken of last."""
    path, rng = s.file, s.rng
    kind = rng.random()
    ending = path.rsplit(".", 1)[-1]
    if ending in RUNNERS and kind < 0.5:
        line = f"{RUNNERS[ending]} {path}"
        task = Task("execute_command", ask(s, "it_run"), {"command": line}, f"run {line}",
                    lambda: results.output(s.words, long=s.long))  # fmt: skip
    elif kind < 0.75:
        task = Task("read_file", ask(s, "it_read"), {"path": path}, f"read {path}",
                    lambda: results.text(s.words, long=s.long), path)  # fmt: skip
    else:
        task = Task("delete_file", ask(s, "it_delete"), {"path": path}, f"delete {path}",
                    lambda: f"Deleted {path}", path)  # fmt: skip
    follow(s, task)


def follow(s: Scene, task: Task) -> None:
    """A request after another one, its call, the answer."""
    if unable(s, task):
        return
    s.user(task.text)
    result = perform(s, task, "call follow-up")
    if result is None:
        no_tool(s)
    else:
        close(s, [(task, result)], "answer follow-up")


def entry(s: Scene, task: Task, result: str) -> tuple[int, str, str] | None:
    """A file of a listing or a search: its place, what the place is called, its path."""
    entries = result.split("\n")
    if task.kind not in ("list_directory", "glob", "grep") or entries[0].startswith("("):
        return None
    entries = [entry for entry in entries if not entry.startswith("[")]
    choices = [
        i for i, entry in enumerate(entries[: 4 if s.held else 6]) if not entry.endswith("/")
    ]
    if not choices:
        return None
    at = s.rng.choice(choices)
    ordinal = ORDINALS[at] if s.held or s.rng.random() < 0.85 else SHORT[at]
    if s.rng.random() < 0.25 and not entries[-1].endswith("/") and len(entries) <= 10:
        at, ordinal = len(entries) - 1, "last"
    path = entries[at].split(":")[0] if task.kind == "grep" else entries[at]
    folder = str(task.args.get("path", "."))
    if task.kind != "grep" and folder != ".":
        path = join(folder, path)
    return at, ordinal, path


def _after_entries(s: Scene, task: Task, result: str) -> None:
    """ "Read the second one" after a listing or a search."""
    found = entry(s, task, result)
    if found is None:
        return
    at, ordinal, path = found
    said = ask(s, "pick")
    while ordinal == "last" and ("{n}" in said or "{d}" in said):
        said = ask(s, "pick")
    number = NUMBERS[at] if at < len(NUMBERS) else ""
    text = said.replace("{o}", ordinal).replace("{n}", str(at + 1)).replace("{d}", number)
    follow(s, Task("read_file", text, {"path": path}, f"read {path}",
                   lambda: results.text(s.words, long=s.long), path))  # fmt: skip


def vague(s: Scene) -> None:
    """A request about a file without a name, at the start of a conversation."""
    if s.messages or not s.tool("read_file"):
        return
    s.user(ask(s, "vague"))
    s.say(WHICH_FILE, "The user names no file. I ask which one.", "which file")
