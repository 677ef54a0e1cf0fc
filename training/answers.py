"""What Pup says: every final answer follows from the call and the tool's result by these rules."""

SHOWN_LINES = 10
MORE = "(and more: the result above is longer)"
BEYOND = (
    "That is beyond me: I am Pup, the tiny model built into Shepherd. "
    "Start `shepherd --model FILE.gguf` with a bigger model and ask again."
)
NO_TOOL = "I have no tool for that here."
GREETING = (
    "Hello! I am Pup, the small model built into Shepherd. I can list, read, write and edit files, "
    "search them, run commands and fetch pages. What shall I do?"
)
IDENTITY = (
    "I am Pup, the small model built into Shepherd: a few million parameters, offline, for simple "
    "tool work. For more, start `shepherd --model FILE.gguf` with a bigger model."
)
HELP = (
    "I can list folders, read, write, edit and delete files, find files and text, run commands, "
    "fetch web pages, and tell the time, the date and environment variables. "
    "Try: list the files here"
)
BIGGER = "Start `shepherd --model FILE.gguf` with the path of a bigger model."
SHEPHERD = (
    "Shepherd is an agent in your terminal and a server for language models. "
    "I am Pup, the small model built into it."
)
LEAVE = "Type /exit or press Ctrl+D."
THANKS = "You are welcome!"
BYE = "Goodbye!"
WHAT = "What shall I do?"
CANNED = (GREETING, IDENTITY, HELP, BIGGER, SHEPHERD, LEAVE, THANKS, BYE, WHAT)
WHICH_FILE = "Which file do you mean?"
REMINDER = (
    "[This exact call was made {n} times; its result does not change. "
    "Answer with what you know or try something else.]"
)


def cut(lines: list[str], bullet: str = "") -> str:
    """At most `SHOWN_LINES` lines, and an honest word if there are more."""
    shown = [bullet + line for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        shown.append(MORE)
    return "\n".join(shown)


def failed(error: str) -> str:
    """An error's text, restated."""
    text = error.removeprefix("Error: ").split("\n")[0]
    if text.startswith("denied"):
        return f"I was not allowed to do that: {text}"
    return f"That did not work: {text}"


def report(tool: str, args: dict[str, object], result: str, name: str = "") -> str:
    """The final answer after `result`; `tool` is Shepherd's name for it, `name` the offered one."""
    lines = result.split("\n")
    if lines[-1].startswith("[This exact call"):
        lines.pop()
    if result.startswith("Error: "):
        return failed(result)
    rule = _RULES.get(tool)
    if rule:
        return rule(args, lines)
    return _says(name or tool, lines)


def _says(subject: str, lines: list[str]) -> str:
    if len(lines) == 1:
        return f"{subject} says: {lines[0]}"
    return f"{subject} says:\n{cut(lines)}"


def _list(args: dict[str, object], lines: list[str]) -> str:
    where = args.get("path", ".")
    where = "The current directory" if where == "." else where
    if lines == ["(empty)"]:
        return f"{where} is empty."
    return f"{where} contains:\n{cut(lines, '- ')}"


def _read(args: dict[str, object], lines: list[str]) -> str:
    if lines == ["(empty file)"]:
        return f"{args['path']} is empty."
    return f"{args['path']} says:\n{cut(lines)}"


def _write(_args: dict[str, object], lines: list[str]) -> str:
    return f"Done. {lines[0]}"


def _glob(args: dict[str, object], lines: list[str]) -> str:
    if lines == ["(no matches)"]:
        return f"No files match {args['pattern']}"
    return f"Files matching {args['pattern']}:\n{cut(lines, '- ')}"


def _grep(args: dict[str, object], lines: list[str]) -> str:
    if lines == ["(no matches)"]:
        return f"There are no matches for {args['pattern']}"
    return f"Found {args['pattern']}:\n{cut(lines)}"


def _run(args: dict[str, object], lines: list[str]) -> str:
    command = f"`{args['command']}`"
    verdict = ""
    if lines[-1].startswith("[exit code "):
        verdict = "failed with " + lines.pop()[1:-1]
    elif lines[-1].startswith("[timed out after "):
        verdict = lines.pop()[1:-1]
    if not lines or lines == ["(no output)"]:
        return f"{command} {verdict or 'ran'} and printed nothing."
    return f"{command} {verdict or 'printed'}:\n{cut(lines)}"


def _http(args: dict[str, object], lines: list[str]) -> str:
    status = " ".join(lines[0].split(" ")[:2])
    if not any(lines[2:]):
        return f"{args['url']} answered {status} with an empty body."
    return f"{args['url']} answered {status}:\n{cut(lines[2:])}"


_RULES = {
    "list_directory": _list,
    "read_file": _read,
    "write_file": _write,
    "edit_file": _write,
    "delete_file": _write,
    "glob": _glob,
    "grep": _grep,
    "execute_command": _run,
    "http_get": _http,
    "http_request": _http,
    "get_time": lambda _args, lines: f"It is {lines[0]}.",
    "get_date": lambda _args, lines: f"Today is {lines[0]}.",
    "get_environment_variable": lambda args, lines: f"{args['name']} is {lines[0]}",
}
