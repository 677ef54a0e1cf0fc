"""Tools on offer: Shepherd's own, the same under other names, and made-up ones of clients."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from training import lists
from training.asks import more_asks
from training.words import Words


@dataclass(frozen=True)
class Tool:
    """A tool as the model sees it; optional arguments end in `?`."""

    name: str
    args: tuple[str, ...] = ()
    kind: str = ""  # Shepherd's own name for what it does; empty for a client's tool
    renamed: Mapping[str, str] = field(default_factory=dict)  # Shepherd's argument -> this tool's
    asks: tuple[str, ...] = ()  # requests for a client's tool; {0}, {1} are the arguments' values

    @property
    def line(self) -> str:
        """The line that describes it in the system message."""
        return f"{self.name}({', '.join(self.args)})"


def _own(line: str) -> Tool:
    name, args = line[:-1].split("(")
    return Tool(name, tuple(args.split(", ")) if args else (), name)


OWN = tuple(
    _own(line)
    for line in (
        "list_directory(path?)",
        "read_file(path, offset?, limit?)",
        "write_file(path, content)",
        "edit_file(path, old_string, new_string, replace_all?)",
        "delete_file(path)",
        "glob(pattern, path?)",
        "grep(pattern, path?, glob?)",
        "execute_command(command, cwd?, timeout?)",
        "http_get(url)",
        "http_request(method, url, headers?, body?)",
        "get_time()",
        "get_date()",
        "get_environment_variable(name)",
    )
)
PATH = ("path", "file", "filename", "file_path", "filepath")
FOLDER = ("path?", "directory?", "dir?", "folder?")
TEXT = ("content", "text", "data", "contents")
WANTED = ("pattern", "query", "text")
Renaming = tuple[tuple[str, ...], dict[str, tuple[str, ...]]]
ALIASES: dict[str, Renaming] = {
    "list_directory": (("list_files", "ls", "list_dir", "show_files", "dir_list"),
                       {"path": FOLDER}),
    "read_file": (("read", "cat", "open_file", "view_file", "show_file", "get_file"),
                  {"path": PATH}),
    "write_file": (("write", "save_file", "create_file", "write_text", "put_file"),
                   {"path": PATH, "content": TEXT}),
    "delete_file": (("delete", "remove_file", "rm", "remove", "erase_file"), {"path": PATH}),
    "glob": (("find_files", "find", "search_files"), {"pattern": ("pattern", "name", "glob")}),
    "grep": (("search", "search_text", "find_text"), {"pattern": WANTED}),
    "execute_command": (("bash", "shell", "run_command", "run", "exec", "terminal"),
                        {"command": ("command", "cmd", "line", "script")}),
    "http_get": (("fetch", "fetch_url", "web_fetch", "get_url", "download"),
                 {"url": ("url", "address", "link")}),
    "get_time": (("current_time", "time", "clock", "now"), {}),
    "get_date": (("current_date", "date", "today"), {}),
}  # fmt: skip


def alias(rng: random.Random, tool: Tool) -> Tool:
    """The same tool under another name, with its own argument names; `tool` if it has none."""
    if tool.kind not in ALIASES:
        return tool
    names, args = ALIASES[tool.kind]
    renamed: dict[str, str] = {}
    shown: list[str] = []
    for arg, choices in args.items():
        choice = rng.choice(choices)
        shown.append(choice)
        renamed[arg] = choice.rstrip("?")
    return Tool(rng.choice(names), tuple(shown), tool.kind, renamed)


def client_tool(words: Words) -> Tool:
    """A client's tool: from the catalogue, or made of a verb, a noun and arbitrary arguments."""
    rng = words.rng
    if rng.random() < 0.5:
        return catalogue_tool(rng, "held out" if words.held else "train")
    held = " held out" if words.held else ""
    verb = rng.choice(lists.words("verbs" + held))
    if rng.random() < 0.2:
        verb = words.word()
    noun = words.word()
    counts = [0, 1, 1, 1, 2, 2] if words.held else [0, 1, 1, 1, 2, 2, 2, 3]
    args = rng.sample(lists.words("arguments" + held), rng.choice(counts))
    if rng.random() < 0.15:
        args = [words.word() for _ in args]
    style = rng.random()
    name = f"{verb}_{noun}"
    if style < 0.15:
        name = verb + noun.capitalize()
    elif style < 0.25:
        name = f"{noun}_{verb}"
    asks = _asks(name, verb, noun, args) if len(args) < 3 else ()
    if not words.held:
        asks += more_asks(name, verb, noun, args)
    return Tool(name, tuple(args), asks=asks)


def catalogue_tool(rng: random.Random, section: str) -> Tool:
    """One of the client's tools in `lists/clients.txt`, under one of its names."""
    lines = lists.sections("clients")[section]
    at = 2 * rng.randrange(len(lines) // 2)
    names, args = lines[at].strip()[:-1].split("(")
    chosen = tuple(rng.choice(arg.split("/")) for arg in args.split(", "))
    return Tool(rng.choice(names.split("/")), chosen, asks=tuple(lines[at + 1].strip().split("|")))


def _asks(name: str, verb: str, noun: str, args: list[str]) -> tuple[str, ...]:
    if not args:
        return (f"{verb} the {noun}", f"{verb} {noun}", f"use {name}", f"call {name}",
                f"can you {verb} the {noun}", f"{verb} my {noun} now")  # fmt: skip
    if len(args) == 1:
        return (f"{verb} the {noun} {{0}}", f"{verb} {noun} {{0}}", f"{verb} the {noun} of {{0}}",
                f"{verb} the {noun} for {{0}}", f"use {name} with {{0}}",
                f"{verb} the {noun} with {args[0]} {{0}}", f"call {name} with {args[0]} {{0}}",
                f"{verb} a {noun} called {{0}}")  # fmt: skip
    first, second = args
    return (f"{verb} the {noun} with {first} {{0}} and {second} {{1}}",
            f"{verb} {noun}, {first} {{0}}, {second} {{1}}",
            f"use {name} with {first} {{0}} and {second} {{1}}",
            f"{verb} the {noun} with {second} {{1}} and {first} {{0}}",
            f"call {name}: {first} {{0}}, {second} {{1}}")  # fmt: skip
