"""Requests about files: listing, reading, writing, editing, deleting, finding."""

import random

from training import bare, results
from training.contents import CODE, content
from training.dialogue import Scene
from training.task import Style, Task, ask, quoted, set_off, shown
from training.words import EXTENSIONS, Words

LANGUAGES = {"python": "py", "Python": "py", "markdown": "md", "text": "txt", "javascript": "js",
             "shell": "sh", "json": "json", "yaml": "yaml", "rust": "rs", "html": "html",
             "log": "log", "java": "java", "csv": "csv", "C": "c", "typescript": "ts"}  # fmt: skip


def spaced(words: Words) -> str:
    """A file's path; one of forty has a space in its name."""
    path = words.path()
    if words.rng.random() < 0.025 and "/" not in path:
        return f"{words.word()} {path}"
    return path


def stem(path: str) -> str:
    """A file's name without its folder and ending."""
    return path.rsplit("/", 1)[-1].split(".")[0]


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
    elif kind < (0.36 if s.held else 0.5):
        text = s.words.words(1, 4)
        if not s.held and rng.random() < 0.7:
            text = bare.content(s.words)
        if rng.random() < 0.12 and stem(path).isalpha():
            text = stem(path)
        said = ask(s, "write_plain", style, p=shown(rng, path), c=text)
    else:
        text = content(s.words)
        said = ask(s, "write", style, p=shown(rng, path), c=quoted(rng, text))
    size = len(text.encode())
    return Task("write_file", said, {"path": path, "content": text}, f"write {path}",
                lambda: f"Wrote {size} bytes to {path}", path)  # fmt: skip


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
        new = bare.changed(s.words, old)
    if not s.held and rng.random() < 0.5:
        return _bare_edit(s, style, path)
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


def _bare_edit(s: Scene, style: Style, path: str) -> Task:
    """Replace what stands in no quotes, in training: values, settings, code."""
    rng = s.rng
    old, new = bare.pair(s.words)
    everywhere = rng.random() < 0.2
    marks = [set_off(rng, text) for text in (old, new)]
    intent = "edit_all" if everywhere else rng.choice(["edit", "edit", "edit_line"])
    args: dict[str, object] = {"path": path, "old_string": old, "new_string": new}
    if everywhere:
        args["replace_all"] = True
    text = ask(s, intent, style, p=shown(rng, path), a=marks[0], b=marks[1])
    return Task("edit_file", text, args, f"edit {path}",
                lambda: _edited(rng, path, everywhere=everywhere), path)  # fmt: skip


def edit_drop(s: Scene, style: Style = Style.ALONE) -> Task:
    """Take a text out of a file."""
    rng, path = s.rng, spaced(s.words)
    old = bare.value(s.words)
    mark = set_off(rng, old)
    args: dict[str, object] = {"path": path, "old_string": old, "new_string": ""}
    return Task("edit_file", ask(s, "edit_drop", style, p=shown(rng, path), a=mark), args,
                f"edit {path}", lambda: _edited(rng, path, everywhere=False), path)  # fmt: skip


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
    if not s.held and rng.random() < 0.4:
        wanted = bare.search(words)
        said = set_off(rng, wanted)
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
