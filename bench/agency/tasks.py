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
IDENTITY = "[user]\nname = Ann\nemail = ann@example.com\n[commit]\ngpgsign = false\n"

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


Maker = Callable[[Random, int], Task]
"""Makes a task from random numbers, in the wording of this number."""


def all_tasks(seed: int = 1, per_kind: int = PER_KIND) -> list[Task]:
    """The tasks in an order in which each beginning has tasks of all kinds."""
    return [
        make(Random(f"{seed} {make.__name__} {number}"), number)
        for number in range(per_kind)
        for make in KINDS
    ]


def git(directory: Path, *arguments: str) -> str:
    """The output of git; "" if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=directory, check=False, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _worded(number: int, *wordings: str) -> str:
    return wordings[number % len(wordings)]


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
        with (directory / ".git" / "config").open("a") as settings:
            settings.write(IDENTITY)
        for number in range(commits):
            git(directory, "commit", "-q", "--allow-empty", "-m", f"Step {number}")
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


def write(rng: Random, wording: int) -> Task:
    name, text = _name(rng), " ".join(rng.sample(WORDS, 2))
    call = ("write_file", {"path": name, "content": text})
    prompt = _worded(
        wording,
        f'Write "{text}" to {name}.',
        f"Create the file {name} with the text: {text}",
        f"Please make a file {name} that says {text}",
        f"I need {name}. It should contain just {text}",
    )
    return Task("write", "files", prompt, _files({}), _holds(name, text), [call])


def read(rng: Random, wording: int) -> Task:
    name, words = _name(rng), rng.sample(WORDS, 3)
    files = _files({name: " ".join(words) + "\n"})
    call = ("read_file", {"path": name})
    answer = " ".join(words)
    prompt = _worded(
        wording,
        f"What is in {name}?",
        f"Read {name}.",
        f"Show me the content of {name}, please.",
        f"Tell me the three words that {name} has.",
    )
    return Task("read", "files", prompt, files, _mentions(*words), [call], answer)


def listing(rng: Random, wording: int) -> Task:
    folder, names = rng.choice(FOLDERS), [_name(rng) for _ in range(3)]
    files = _files({f"{folder}/{name}": "x\n" for name in names})
    call = ("list_directory", {"path": folder})
    prompt = _worded(
        wording,
        f"List the files in {folder}.",
        f"What is in the folder {folder}?",
        f"Which files does {folder} have?",
        f"Look into {folder} and name everything there.",
    )
    return Task("list", "files", prompt, files, _mentions(*names), [call], " ".join(names))


def edit(rng: Random, wording: int) -> Task:
    name, (old, new, other) = _name(rng), rng.sample(WORDS, 3)
    call = ("edit_file", {"path": name, "old_string": old, "new_string": new})
    files = _files({name: f"{other} {old}\n"})
    prompt = _worded(
        wording,
        f"Replace {old} with {new} in {name}.",
        f"In {name}, change {old} to {new}.",
        f"Edit {name}: {old} must become {new}",
        f"The word {old} in {name} is wrong, it should be {new}. Fix it.",
    )
    return Task("edit", "files", prompt, files, _holds(name, f"{other} {new}"), [call])


def delete(rng: Random, wording: int) -> Task:
    name = _name(rng)

    def check(directory: Path, _answer: str) -> bool:
        return not (directory / name).exists() and (directory / "keep.md").exists()

    files = _files({name: "x\n", "keep.md": "y\n"})
    prompt = _worded(
        wording,
        f"Delete {name}.",
        f"Remove the file {name}, please.",
        f"I don't need {name} any more. Get rid of it.",
        f"Delete {name}, but keep all other files.",
    )
    return Task("delete", "files", prompt, files, check, [("delete_file", {"path": name})])


def branch(rng: Random, wording: int) -> Task:
    name = f"{rng.choice(WORDS)}-{rng.randint(10, 99)}"
    call = ("execute_command", {"command": "git branch --show-current"})
    prompt = _worded(
        wording,
        "Which git branch is checked out?",
        "On which branch am I?",
        "Run git branch --show-current",
        "Tell me the name of the current git branch.",
    )
    return Task("branch", "git", prompt, _repository(name, 1, {}), _mentions(name), [call], name)


def commits(rng: Random, wording: int) -> Task:
    number = rng.randint(3, 9)
    call = ("execute_command", {"command": "git rev-list --count HEAD"})
    prompt = _worded(
        wording,
        "Run git rev-list --count HEAD and tell me the number.",
        "How many commits does this repository have?",
        "Count the commits with git rev-list --count HEAD",
        "Use git to find out how many commits there are.",
    )
    check = _mentions(str(number))
    return Task("count", "git", prompt, _repository("main", number, {}), check, [call], str(number))


def new_branch(rng: Random, wording: int) -> Task:
    name = f"{rng.choice(WORDS)}-{rng.randint(10, 99)}"

    def check(directory: Path, _answer: str) -> bool:
        return bool(git(directory, "branch", "--list", name))

    call = ("execute_command", {"command": f"git branch {name}"})
    prompt = _worded(
        wording,
        f"Make a git branch named {name}.",
        f"Run git branch {name}",
        f"Create the branch {name} in git, please.",
        f"I want to work on a new branch: {name}. Create it.",
    )
    return Task("new branch", "git", prompt, _repository("main", 1, {}), check, [call])


def commit(rng: Random, wording: int) -> Task:
    name, text = _name(rng), f"Add {rng.choice(WORDS)}"

    def check(directory: Path, _answer: str) -> bool:
        return git(directory, "log", "-1", "--format=%s") == text

    line = f'git add -A && git commit -m "{text}"'
    prompt = _worded(
        wording,
        f'Run git add -A && git commit -m "{text}"',
        f'Commit all changes with the message "{text}"',
        f'Commit {name} with the message "{text}"',
        f'Add everything to git and commit it as "{text}"',
    )
    loose = _repository("main", 1, {name: "x\n"})
    return Task("commit", "git", prompt, loose, check, [("execute_command", {"command": line})])


def status(rng: Random, wording: int) -> Task:
    name = _name(rng)
    call = ("execute_command", {"command": "git status --short"})
    prompt = _worded(
        wording,
        "Which files does git status show as new?",
        "Run git status --short",
        "Which file is not yet in git?",
        "Is there anything uncommitted here? Name it.",
    )
    prepare = _repository("main", 1, {name: "x\n"})
    return Task("status", "git", prompt, prepare, _mentions(name), [call], name)


def search(rng: Random, wording: int) -> Task:
    names, (word, *others) = [_name(rng) for _ in range(3)], rng.sample(WORDS, 4)
    texts = [f"{others[0]} {word}", *others[1:]]
    files = _files({name: f"{text}\n" for name, text in zip(names, texts, strict=True)})
    call = ("grep", {"pattern": word})
    prompt = _worded(
        wording,
        f"Which file contains {word}?",
        f"Search for {word} in all files.",
        f"Find the file in which the word {word} stands.",
        f"grep {word}",
    )
    return Task("search", "text", prompt, files, _mentions(names[0]), [call], names[0])


def find(rng: Random, wording: int) -> Task:
    names = [f"{rng.choice(FOLDERS)}/{_name(rng, 'py')}" for _ in range(2)]
    files = _files({**dict.fromkeys(names, "x\n"), "other.md": "x\n"})
    stems = [Path(name).name for name in names]
    call = ("glob", {"pattern": "*.py"})
    prompt = _worded(
        wording,
        "Find all files that match *.py",
        "Which Python files are here?",
        "Find *.py",
        "Name all files that end in .py, also those in folders.",
    )
    return Task("find", "text", prompt, files, _mentions(*stems), [call], " ".join(stems))


def lines(rng: Random, wording: int) -> Task:
    name, number = _name(rng), rng.randint(11, 30)
    files = _files({name: "".join(f"{rng.choice(WORDS)}\n" for _ in range(number))})
    call = ("execute_command", {"command": f"wc -l {name}"})
    prompt = _worded(
        wording,
        f"Run wc -l {name} and tell me the number.",
        f"How many lines does {name} have?",
        f"Count the lines of {name}.",
        f"wc -l {name}",
    )
    return Task("lines", "text", prompt, files, _mentions(str(number)), [call], str(number))


def last_line(rng: Random, wording: int) -> Task:
    name, texts = _name(rng), [" ".join(rng.sample(WORDS, 2)) for _ in range(6)]
    files = _files({name: "\n".join(texts) + "\n"})
    last = texts[-1]
    prompt = _worded(
        wording,
        f"What is the last line of {name}?",
        f"Run tail -n 1 {name}",
        f"Show me only the last line of {name}.",
        f"How does {name} end? Give me its last line.",
    )

    def check(_directory: Path, answer: str) -> bool:
        return last in answer and texts[0] not in answer

    call = ("read_file", {"path": name, "offset": 6})
    return Task("last line", "text", prompt, files, check, [call], last)


def copy(rng: Random, wording: int) -> Task:
    name, other, text = _name(rng), _name(rng, "md"), " ".join(rng.sample(WORDS, 3))
    calls = [("read_file", {"path": name}), ("write_file", {"path": other, "content": text})]
    files = _files({name: f"{text}\n"})
    prompt = _worded(
        wording,
        f"Read {name} and write the same text to {other}.",
        f"Copy {name} to {other}.",
        f"Make {other} with the content of {name}.",
        f"Run cp {name} {other}",
    )
    return Task("copy", "text", prompt, files, _holds(other, text), calls)


KINDS: tuple[Maker, ...] = (
    *(write, read, listing, edit, delete),
    *(branch, commits, new_branch, commit, status),
    *(search, find, lines, last_line, copy),
)
