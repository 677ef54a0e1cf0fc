"""What users say about what was just spoken of, only in training: "delete the last one"."""

from dataclasses import replace

from training import bare, everyday_tasks, other_tasks, results, tasks
from training.dialogue import Scene
from training.scenes import ORDINALS, entry, follow, once
from training.task import Maker, Style, Task, ask, set_off
from training.words import join


def edit_it(s: Scene) -> None:
    """ "Change 8080 to 9000" after a file was read or written."""
    rng = s.rng
    task = rng.choices((tasks.read, tasks.write, tasks.edit), (5, 3, 2))[0](s, Style.ALONE)
    result = once(s, task)
    if result is None or result.startswith("Error: "):
        return
    old, new = bare.pair(s.words)
    texts = {"read_file": result, "write_file": str(task.args.get("content"))}
    found = [word for word in texts.get(task.kind, "").split() if word.isalnum()]
    if found and rng.random() < 0.7:
        old = rng.choice(found)
        new = bare.value(s.words)
    marks = [set_off(rng, text) for text in (old, new)]
    args: dict[str, object] = {"path": task.path, "old_string": old, "new_string": new}
    follow(s, Task("edit_file", ask(s, "edit_it", a=marks[0], b=marks[1]), args,
                   f"edit {task.path}", lambda: f"Edited {task.path}: 1 replacement",
                   task.path))  # fmt: skip


THERE = (" from there", " in there", " from that folder", " in that folder", " there")
IT = ("it", "it", "that file", "this file", "the file", "the same file")
ABOUT_IT: dict[Maker, float] = {
    tasks.read_part: 3, tasks.edit: 3, everyday_tasks.read_range: 1, everyday_tasks.read_tail: 1,
    everyday_tasks.size: 0.7, other_tasks.count: 1, other_tasks.append: 1.5, tasks.edit_drop: 1.5,
    tasks.delete: 1,
}  # fmt: skip


def about_it(s: Scene) -> None:
    """Any request about a file, for the one that was spoken of: "the first 5 lines of it"."""
    rng = s.rng
    first = rng.choices((tasks.read, tasks.write, tasks.edit), (5, 2, 2))[0](s, Style.ALONE)
    if _failed(once(s, first)):
        return
    task = rng.choices(list(ABOUT_IT), list(ABOUT_IT.values()))[0](s, Style.ALONE)
    mark = rng.choice("'\"`")
    old = f"{mark}{task.path}{mark}" if f"{mark}{task.path}{mark}" in task.text else task.path
    if task.text.count(old) != 1 or any(f"{q}{old}" in task.text for q in "'\"`"):
        return
    args = {name: value.replace(task.path, first.path) if name in ("path", "command") else value
            for name, value in task.args.items() if isinstance(value, str)}  # fmt: skip
    answer, path = task.answer, task.path
    follow(s, replace(task, text=task.text.replace(old, rng.choice(IT)), args=task.args | args,
                      answer=lambda: answer().replace(path, first.path), path=first.path,
                      want=task.want.replace(path, first.path)))  # fmt: skip


def named_entry(s: Scene) -> None:
    """After a listing one of its entries is named: it is in the folder that was listed."""
    rng = s.rng
    listing = (tasks.list_folder if rng.random() < 0.7 else tasks.list_here)(s, Style.ALONE)
    names = s.words.entries(rng.randint(1, 8))
    listing = replace(listing, answer=lambda: "\n".join(names))
    if _failed(once(s, listing)):
        return
    for name in rng.sample(names, min(len(names), rng.choice([1, 1, 2]))):
        follow(s, _about(s, name, listing.path))


def _about(s: Scene, name: str, folder: str) -> Task:
    """List, read or delete this entry of the folder."""
    inside = name.rstrip("/")
    path = inside if folder == "." else join(folder, inside)
    if name.endswith("/"):
        task = tasks.list_folder(s, Style.ALONE)
    elif s.rng.random() < 0.25:
        task = replace(tasks.delete(s, Style.ALONE), answer=lambda: f"Deleted {path}")
    else:
        task = tasks.read(s, Style.ALONE)
    text = task.text.replace(task.path, inside) if task.path != "." else f"list {inside}"
    if s.rng.random() < 0.15 and text[-1].isalnum():
        text += s.rng.choice(THERE)
    return replace(task, text=text, args={"path": path}, want=f"see {path}", path=path)


def delete_one(s: Scene) -> None:
    """ "Delete the second one" after a listing or a search."""
    task = s.rng.choice((tasks.list_here, tasks.list_folder, tasks.glob))(s, Style.ALONE)
    result = once(s, task)
    found = entry(s, task, result or "")
    if _failed(result) or found is None:
        return
    _, ordinal, path = found
    follow(s, Task("delete_file", ask(s, "pick_delete", o=ordinal), {"path": path},
                   f"delete {path}", lambda: f"Deleted {path}", path))  # fmt: skip


def search_again(s: Scene) -> None:
    """ "And WARNING?" after a search: the same for another text."""
    task = tasks.grep(s, Style.ALONE)
    if once(s, task) is None:
        return
    for _ in range(s.rng.choice([1, 1, 2])):
        follow(s, _search(s, task))


def _search(s: Scene, before: Task) -> Task:
    """The same search for another text."""
    wanted = bare.search(s.words)
    text = ask(s, "grep_again", w=set_off(s.rng, wanted))
    return Task("grep", text, before.args | {"pattern": wanted}, f"search for {wanted}",
                lambda: results.matches(s.words, wanted, long=False))  # fmt: skip


def other(s: Scene) -> None:
    """Of two files one is read, and then "the other one"."""
    rng = s.rng
    listing = (tasks.list_folder if rng.random() < 0.6 else tasks.list_here)(s, Style.ALONE)
    files = sorted({s.words.filename() for _ in range(2)})
    listing = replace(listing, answer=lambda: "\n".join(files))
    if len(files) < 2 or _failed(once(s, listing)):
        return
    at = rng.randrange(2)
    first, second = (name if listing.path == "." else join(listing.path, name)
                     for name in (files[at], files[1 - at]))  # fmt: skip
    said = (ask(s, "pick").replace("{o}", ORDINALS[at]).replace("{n}", str(at + 1))
            .replace("{d}", ("one", "two")[at]))  # fmt: skip
    for text, path in ((said, first), (ask(s, "other"), second)):
        follow(s, Task("read_file", text, {"path": path}, f"read {path}",
                       lambda: results.text(s.words, long=False), path))  # fmt: skip


def there(s: Scene) -> None:
    """A folder is made or told, and then "list the files in there"."""
    rng = s.rng
    folder = s.words.folder()
    line = f"mkdir -p {folder}"
    made = Task("execute_command", ask(s, "make_folder", d=folder), {"command": line},
                f"run {line}", lambda: "(no output)")  # fmt: skip
    if rng.random() < 0.5:
        made = replace(tasks.variable(s, Style.ALONE), answer=lambda: folder)
    if _failed(once(s, made)):
        return
    if rng.random() < 0.7:
        follow(s, Task("list_directory", ask(s, "list_it"), {"path": folder}, f"list {folder}",
                       lambda: results.listing(s.words, long=False), folder))  # fmt: skip


def _failed(result: str | None) -> bool:
    return result is None or result.startswith("Error: ")
