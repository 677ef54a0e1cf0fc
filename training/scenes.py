"""Scenes with tools: one call, several calls, follow-ups, clients' tools."""

from dataclasses import replace

from training import lists, results, tasks
from training.answers import NO_TOOL, WHICH_FILE, report
from training.dialogue import Scene
from training.phrasing import Phrases, expand
from training.tasks import Maker, Style, Task, ask, content, quoted, shown
from training.toolbox import Tool
from training.words import join

ANSWERED = "The tool answered. I report the result."
FAILED = "The tool failed. I report the error."
MISSING = "I have no tool for that. I say so."
REPETITIVE, ALIKE = 0.25, 0.1  # shares of the results and requests in training of few words
ORDINALS = ("first", "second", "third", "fourth", "last")
ABOUT_PATHS = ("read_file", "delete_file", "write_file", "list_directory")
READ_VERBS = ("read", "show me", "open", "print", "show", "display", "cat", "the files")
DELETE_VERBS = ("delete", "remove", "erase", "get rid of", "throw away", "rm")
READ_BACK = (
    "[read|show|print|display|open|view|check|cat] [it|the file|that file|the result]"
    "[| to me| back| again| for me]"
)
RUN_IT = "[run|execute|start|launch|try] [it|the file|the script|that script|this]"
FIRST_ENTRY = (
    "[read|open|show me|print|display|cat|view|give me] the first [file|one|entry|of them|item]"
)
RUNNERS = {"py": "python", "sh": "sh", "js": "node"}
THEN = (
    *(" and then ", " then ", ", then ", ", and then ", " and ", " and after that ", "; then "),
    *(". After that, ", ". Afterwards ", ". Next, ", ", next ", ". And then ", " and afterwards "),
    *("; after that, ", ". When that is done, ", ", once done, ", ", finally ", ". Also ", "\n"),
    *(", and ", " and also ", " and next ", ", followed by ", " - then ", ", when done ", ". Now "),
    *("; next ", " + ", ", then please ", ". After this ", " & ", ", also ", ". Finally, ", ". "),
)
HELD_THEN = (", after that ", ". Then ", ", afterwards ")
BOTH = (
    *(" and ", " and ", ", ", " & ", " and then ", " as well as ", " and also ", ", then "),
    *(" then ", " plus ", " + ", " and after that ", ", and ", ", also ", " and finally "),
)
HELD_BOTH = (", after that ", ", afterwards ", " together with ")


def unable(s: Scene, task: Task) -> bool:
    """Whether the tool is offered, but without an argument that the task needs."""
    tool = s.tool(task.kind)
    return tool is not None and bool(tool.renamed) and bool(set(task.args) - set(tool.renamed))


def perform(s: Scene, task: Task, label: str, refuse: float = 0.05) -> str | None:
    """Pup calls the task's tool; returns the result, or None if the tool is not offered."""
    tool = s.tool(task.kind)
    if tool is None:
        return None
    s.act(tool, task.args, task.want, label)
    kind = s.rng.random()
    if kind < refuse:
        result = results.refusal(s.words, tool.name)
    elif kind < refuse + 0.06 and task.kind in ABOUT_PATHS and task.path != ".":
        result = results.path_error(s.words, task.kind, task.path)
    elif kind < refuse + 0.12 and task.kind.startswith("http"):
        result = results.host_error(s.words, task.path)
    else:
        result = results.reminded(s.rng, _answer(s, task))
    s.result(result)
    return result


def _answer(s: Scene, task: Task) -> str:
    """The tool's result; in training sometimes of so few words that copying it is hard."""
    if s.held or s.rng.random() > REPETITIVE:
        return task.answer()
    with s.words.few(s.rng.randint(4, 20)):
        return task.answer()


def _close(s: Scene, done: list[tuple[Task, str]], label: str) -> None:
    """The final answer about the results of one or more calls."""
    said = [report(task.kind, task.args, result) for task, result in done]
    failed = done[-1][1].startswith("Error: ")
    s.say("\n\n".join(said), FAILED if failed else ANSWERED, label + (" error" if failed else ""))


def no_tool(s: Scene) -> None:
    """Pup says that it lacks the tool."""
    s.say(NO_TOOL, MISSING, "no tool")


def _make(s: Scene, style: Style = Style.ALONE, makers: dict[Maker, float] | None = None) -> Task:
    pool = makers or (tasks.MAKERS if s.held else tasks.PRACTICE)
    offered = {tool.kind for tool in s.tools}
    missing = s.rng.random() < (0.06 if s.held else 0.13)
    few = 0 if s.held or s.rng.random() > ALIKE else s.rng.randint(3, 10)
    for _ in range(60):
        with s.words.few(few):
            task = s.rng.choices(list(pool), list(pool.values()))[0](s, style)
        if (task.kind in offered) != missing:
            break
    return task  # pyright: ignore[reportPossiblyUnbound]


def listed(s: Scene) -> None:
    """A listing or a search, and then one of its entries."""
    if not s.tool("read_file"):
        return
    task = s.rng.choice((tasks.list_here, tasks.list_folder, tasks.glob))(s, Style.ALONE)
    if s.tool(task.kind) is None or unable(s, task):
        return
    s.user(task.text)
    result = perform(s, task, f"call {task.kind}", refuse=0) or ""
    _close(s, [(task, result)], f"answer {task.kind}")
    if not result.startswith("Error: "):
        _after_entries(s, task, result)


def single(s: Scene) -> None:
    """One request, one call, one answer; sometimes a follow-up about the same file."""
    task = _make(s)
    if unable(s, task):
        return
    s.user(task.text)
    result = perform(s, task, f"call {task.kind}")
    if result is None:
        no_tool(s)
        return
    _close(s, [(task, result)], f"answer {task.kind}")
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
    _follow(s, task)


def again(s: Scene, task: Task) -> None:
    """The same call once more."""
    repeated = replace(task, text=ask(s, "again"))
    _follow(s, repeated)


def same(s: Scene, task: Task) -> None:
    """ "And b.txt?": the same tool for another path."""
    makers = {"read_file": tasks.read, "delete_file": tasks.delete}
    other = makers.get(task.kind, tasks.list_folder)(s, Style.JOINED)
    _follow(s, replace(other, text=ask(s, "same", p=other.path)))


def append(s: Scene) -> None:
    """Appending to a file: no tool does it."""
    text = ask(s, "append", c=quoted(s.rng, content(s.words)), p=s.words.path())
    s.user(text)
    no_tool(s)


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
    _follow(s, task)


def _follow(s: Scene, task: Task) -> None:
    if unable(s, task):
        return
    s.user(task.text)
    result = perform(s, task, "call follow-up")
    if result is None:
        no_tool(s)
    else:
        _close(s, [(task, result)], "answer follow-up")


def _after_entries(s: Scene, task: Task, result: str) -> None:
    """ "Read the second one" after a listing or a search."""
    entries = result.split("\n")
    if task.kind not in ("list_directory", "glob", "grep") or entries[0].startswith("("):
        return
    entries = [entry for entry in entries if not entry.startswith("[")]
    choices = [i for i, entry in enumerate(entries[:4]) if not entry.endswith("/")]
    if not choices:
        return
    at = s.rng.choice(choices)
    ordinal = ORDINALS[at]
    if s.rng.random() < 0.25 and not entries[-1].endswith("/") and len(entries) <= 10:
        at, ordinal = len(entries) - 1, "last"
    path = entries[at].split(":")[0] if task.kind == "grep" else entries[at]
    folder = str(task.args.get("path", "."))
    if task.kind != "grep" and folder != ".":
        path = join(folder, path)
    said = ask(s, "pick")
    while ordinal == "last" and "{n}" in said:
        said = ask(s, "pick")
    text = said.replace("{o}", ordinal).replace("{n}", str(at + 1))
    follow = Task("read_file", text, {"path": path}, f"read {path}",
                  lambda: results.text(s.words, long=s.long), path)  # fmt: skip
    _follow(s, follow)


def double(s: Scene) -> None:
    """Two tasks in one request, done one after the other."""
    rng = s.rng
    tasks_ = [_make(s, Style.JOINED, PAIRS), _make(s, Style.JOINED, PAIRS)]
    if any(s.tool(task.kind) is None for task in tasks_):
        return
    if rng.random() < 0.3:
        tasks_ = _same(s)
        then = rng.choice(HELD_BOTH if s.held else BOTH)
        _sequence(s, tasks_[0].text + then + tasks_[1].text, tasks_)
        return
    _sequence(s, joined(s, tasks_[0].text, tasks_[1].text), tasks_)


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
        text = rng.choice(["please ", "can you ", "could you ", "now ", "ok, "]) + text
    if rng.random() < 0.3:
        text = _capital(text)
    return text + rng.choice(["", "", "", "", "", " please"])


def _same(s: Scene) -> list[Task]:
    """Two files in one request: "read a and b"; the joint text stands in the first task."""
    verb, make = s.rng.choice([*((verb, tasks.read) for verb in READ_VERBS),
                               *((verb, tasks.delete) for verb in DELETE_VERBS)])  # fmt: skip
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
        label = "call second of two" if i else "call first of two"
        result = perform(s, task, label, 0.05 if s.held or i else 0.15)
        if result is None:
            no_tool(s)
            return
        done.append((task, result))
        if dependent and result.startswith("Error: "):
            break
    _close(s, done, "answer two")
    s.file = ""


def write_then(s: Scene) -> None:
    """ "Write it, then read it" or run it: the second step stands on the first."""
    first = tasks.write(s, Style.JOINED)
    ending = first.path.rsplit(".", 1)[-1]
    if ending in RUNNERS and s.rng.random() < 0.7:
        line = f"{RUNNERS[ending]} {first.path}"
        second = Task("execute_command", expand(s.rng, RUN_IT), {"command": line},
                      f"run {line}", lambda: results.output(s.words, long=s.long))  # fmt: skip
    else:
        said = expand(s.rng, READ_BACK)
        shown = str(first.args["content"]) or "(empty file)"
        second = Task("read_file", said, {"path": first.path}, f"read {first.path}",
                      lambda: shown, first.path)  # fmt: skip
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
    said = expand(s.rng, FIRST_ENTRY)
    second = Task("read_file", said, {"path": path}, f"read {path}",
                  lambda: results.text(s.words, long=False), path)  # fmt: skip
    _sequence(s, joined(s, first.text, said), [first, second], dependent=True)


def vague(s: Scene) -> None:
    """A request about a file without a name, at the start of a conversation."""
    if s.messages or not s.tool("read_file"):
        return
    s.user(ask(s, "vague"))
    s.say(WHICH_FILE, "The user names no file. I ask which one.", "which file")


def client(s: Scene) -> None:
    """A client's tool, of a name never seen."""
    tools = [tool for tool in s.tools if not tool.kind]
    if not tools:
        return
    tool = s.rng.choice(tools)
    values = [_value(s, arg) for arg in tool.args]
    asks = Phrases(tool.asks, tool.asks if s.held else ())
    text = asks.pick(s.rng, held=s.held)
    for i, value in enumerate(values):
        text = text.replace(f"{{{i}}}", value)
    args: dict[str, object] = {
        arg.rstrip("?"): int(value) if value.isdecimal() else value
        for arg, value in zip(tool.args, values, strict=True)
    }
    s.user(text)
    s.act(tool, args, f"use {tool.name}", "call client tool")
    result = _client_result(s, tool)
    s.result(result)
    failed = result.startswith("Error: ")
    label = "answer client tool" + (" error" if failed else "")
    s.say(report("", args, result, tool.name), FAILED if failed else ANSWERED, label)


def _value(s: Scene, arg: str) -> str:
    rng, words = s.rng, s.words
    if arg in lists.words("numeric arguments"):
        return str(rng.randint(1, 999))
    if arg in ("text", "body", "message", "query", "sentence", "title", "note", "q", "statement"):
        return words.words(1, 5)
    kind = rng.random()
    if kind < 0.45:
        return words.word().capitalize()
    if kind < 0.75:
        return words.word()
    if kind < 0.85:
        return f"{words.word().capitalize()} {words.word().capitalize()}"
    return words.name() if kind < 0.95 else str(rng.randint(1, 9999))


def _client_result(s: Scene, tool: Tool) -> str:
    rng, words = s.rng, s.words
    kind = rng.random()
    if kind < 0.06:
        return results.refusal(words, tool.name)
    if kind < 0.12:
        return f"Error: {words.words(1, 5)}"
    if kind < 0.35:
        return (f'{{"{words.word()}": {rng.randint(0, 99)}, "{words.word()}": '
                f'"{words.words(1, 2)}"}}')  # fmt: skip
    if kind < 0.55:
        number, share = str(rng.randint(0, 99999)), rng.random
        return rng.choice([number, words.word(), "ok", f"{share() * 99:.2f}"])
    if kind < 0.85:
        return words.words(2, 8).capitalize()
    return "\n".join(words.lines(results.count(rng, long=s.long)))


PAIRS: dict[Maker, float] = {
    tasks.list_here: 1, tasks.list_folder: 2, tasks.read: 4, tasks.write: 2, tasks.edit: 1.5,
    tasks.delete: 1.5, tasks.glob: 1, tasks.grep: 1.5, tasks.time: 0.5, tasks.date: 0.5,
    tasks.run: 1, tasks.fetch: 0.5,
}  # fmt: skip
