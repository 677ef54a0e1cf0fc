"""The tasks: made from a seed in an empty directory, and checked by a program."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

PER_KIND = 4
NAMES = ("notes", "report", "colours", "plan", "menu", "letter", "summary", "diary", "budget")
WORDS = (
    "apple",
    "river",
    "stone",
    "cloud",
    "garden",
    "winter",
    "lamp",
    "bridge",
    "violin",
    "paper",
)
FOLDERS = ("docs", "src", "data", "drafts")
GIT = (
    "git",
    "-c",
    "user.name=Ann",
    "-c",
    "user.email=ann@example.com",
    "-c",
    "commit.gpgsign=false",
)

Calls = Sequence[tuple[str, Mapping[str, Any]]]
Check = Callable[[Path, str], bool]


@dataclass(frozen=True, slots=True)
class Task:
    """One task; `prepare` fills an empty directory, and `check` gets it and the last answer.

    `calls` and `answer` are one solution, which shows that the task can be solved.
    """

    kind: str
    area: str
    prompt: str
    prepare: Callable[[Path], None]
    check: Check
    calls: Calls = ()
    answer: str = "Done."


Maker = Callable[[Random], Task]


def all_tasks(seed: int = 1, per_kind: int = PER_KIND) -> list[Task]:
    """The tasks in an order in which each beginning has tasks of all kinds."""
    return [
        make(Random(f"{seed} {make.__name__} {number}"))
        for number in range(per_kind)
        for make in KINDS
    ]


def git(directory: Path, *arguments: str) -> str:
    """The output of git; "" if it fails."""
    done = subprocess.run(
        [*GIT, *arguments], cwd=directory, check=False, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _files(contents: Mapping[str, str]) -> Callable[[Path], None]:
    def prepare(directory: Path) -> None:
        for name, text in contents.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return prepare


def _repository(branch: str, commits: int, loose: Mapping[str, str]) -> Callable[[Path], None]:
    def prepare(directory: Path) -> None:
        git(directory, "init", "-q", "-b", branch)
        for number in range(commits):
            (directory / "log.txt").write_text(f"{number}\n")
            git(directory, "add", ".")
            git(directory, "commit", "-qm", f"Step {number}")
        _files(loose)(directory)

    return prepare


def _mentions(*parts: str) -> Check:
    return lambda _directory, answer: all(part.lower() in answer.lower() for part in parts)


def _holds(name: str, text: str) -> Check:
    def check(directory: Path, _answer: str) -> bool:
        path = directory / name
        return path.is_file() and path.read_text().strip() == text

    return check


def _name(rng: Random, ending: str = "txt") -> str:
    return f"{rng.choice(NAMES)}{rng.randint(1, 99)}.{ending}"


def write(rng: Random) -> Task:
    name, text = _name(rng), " ".join(rng.sample(WORDS, 2))
    call = ("write_file", {"path": name, "content": text})
    prompt = f'Write "{text}" to {name}.'
    return Task("write", "files", prompt, _files({}), _holds(name, text), [call])


def read(rng: Random) -> Task:
    name, words = _name(rng), rng.sample(WORDS, 3)
    files = _files({name: " ".join(words) + "\n"})
    call = ("read_file", {"path": name})
    answer = " ".join(words)
    return Task("read", "files", f"What is in {name}?", files, _mentions(*words), [call], answer)


def listing(rng: Random) -> Task:
    folder, names = rng.choice(FOLDERS), [_name(rng) for _ in range(3)]
    files = _files({f"{folder}/{name}": "x\n" for name in names})
    call = ("list_directory", {"path": folder})
    prompt = f"List the files in {folder}."
    return Task("list", "files", prompt, files, _mentions(*names), [call], " ".join(names))


def edit(rng: Random) -> Task:
    name, (old, new, other) = _name(rng), rng.sample(WORDS, 3)
    call = ("edit_file", {"path": name, "old_string": old, "new_string": new})
    files = _files({name: f"{other} {old}\n"})
    prompt = f"Replace {old} with {new} in {name}."
    return Task("edit", "files", prompt, files, _holds(name, f"{other} {new}"), [call])


def delete(rng: Random) -> Task:
    name = _name(rng)

    def check(directory: Path, _answer: str) -> bool:
        return not (directory / name).exists() and (directory / "keep.md").exists()

    files = _files({name: "x\n", "keep.md": "y\n"})
    return Task(
        "delete", "files", f"Delete {name}.", files, check, [("delete_file", {"path": name})]
    )


def branch(rng: Random) -> Task:
    name = f"{rng.choice(WORDS)}-{rng.randint(10, 99)}"
    call = ("execute_command", {"command": "git branch --show-current"})
    prompt = "Which git branch is checked out?"
    return Task("branch", "git", prompt, _repository(name, 1, {}), _mentions(name), [call], name)


def commits(rng: Random) -> Task:
    number = rng.randint(3, 9)
    call = ("execute_command", {"command": "git rev-list --count HEAD"})
    prompt = "Run git rev-list --count HEAD and tell me the number."
    check = _mentions(str(number))
    return Task("count", "git", prompt, _repository("main", number, {}), check, [call], str(number))


def new_branch(rng: Random) -> Task:
    name = f"{rng.choice(WORDS)}-{rng.randint(10, 99)}"

    def check(directory: Path, _answer: str) -> bool:
        return bool(git(directory, "branch", "--list", name))

    call = ("execute_command", {"command": f"git branch {name}"})
    prompt = f"Make a git branch named {name}."
    return Task("new branch", "git", prompt, _repository("main", 1, {}), check, [call])


def commit(rng: Random) -> Task:
    name, text = _name(rng), f"Add {rng.choice(WORDS)}"

    def check(directory: Path, _answer: str) -> bool:
        return git(directory, "log", "-1", "--format=%s") == text

    line = f'git add -A && {" ".join(GIT)} commit -m "{text}"'
    prompt = f'Run git add -A && git commit -m "{text}"'
    loose = _repository("main", 1, {name: "x\n"})
    return Task("commit", "git", prompt, loose, check, [("execute_command", {"command": line})])


def status(rng: Random) -> Task:
    name = _name(rng)
    call = ("execute_command", {"command": "git status --short"})
    prompt = "Which files does git status show as new?"
    prepare = _repository("main", 1, {name: "x\n"})
    return Task("status", "git", prompt, prepare, _mentions(name), [call], name)


def search(rng: Random) -> Task:
    names, (word, *others) = [_name(rng) for _ in range(3)], rng.sample(WORDS, 4)
    texts = [f"{others[0]} {word}", *others[1:]]
    files = _files({name: f"{text}\n" for name, text in zip(names, texts, strict=True)})
    call = ("grep", {"pattern": word})
    prompt = f"Which file contains {word}?"
    return Task("search", "text", prompt, files, _mentions(names[0]), [call], names[0])


def find(rng: Random) -> Task:
    names = [f"{rng.choice(FOLDERS)}/{_name(rng, 'py')}" for _ in range(2)]
    files = _files({**dict.fromkeys(names, "x\n"), "other.md": "x\n"})
    stems = [Path(name).name for name in names]
    call = ("glob", {"pattern": "*.py"})
    prompt = "Find all files that match *.py"
    return Task("find", "text", prompt, files, _mentions(*stems), [call], " ".join(stems))


def lines(rng: Random) -> Task:
    name, number = _name(rng), rng.randint(11, 30)
    files = _files({name: "".join(f"{rng.choice(WORDS)}\n" for _ in range(number))})
    call = ("execute_command", {"command": f"wc -l {name}"})
    prompt = f"Run wc -l {name} and tell me the number."
    return Task("lines", "text", prompt, files, _mentions(str(number)), [call], str(number))


def last_line(rng: Random) -> Task:
    name, texts = _name(rng), [" ".join(rng.sample(WORDS, 2)) for _ in range(6)]
    files = _files({name: "\n".join(texts) + "\n"})
    last = texts[-1]

    def check(_directory: Path, answer: str) -> bool:
        return last in answer and texts[0] not in answer

    call = ("read_file", {"path": name, "offset": 6})
    return Task(
        "last line", "text", f"What is the last line of {name}?", files, check, [call], last
    )


def copy(rng: Random) -> Task:
    name, other, text = _name(rng), _name(rng, "md"), " ".join(rng.sample(WORDS, 3))
    calls = [("read_file", {"path": name}), ("write_file", {"path": other, "content": text})]
    files = _files({name: f"{text}\n"})
    prompt = f"Read {name} and write the same text to {other}."
    return Task("copy", "text", prompt, files, _holds(other, text), calls)


KINDS: tuple[Maker, ...] = (
    *(write, read, listing, edit, delete),
    *(branch, commits, new_branch, commit, status),
    *(search, find, lines, last_line, copy),
)
