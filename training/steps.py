"""What scenes are made of: one call with its result, the answer that closes, a task to ask for."""

from training import results, tasks
from training.answers import NO_TOOL, report
from training.dialogue import Scene
from training.task import Maker, Style, Task

ABOUT_PATHS = ("read_file", "delete_file", "write_file", "list_directory")
RUNNERS = {"py": "python", "sh": "sh", "js": "node"}
ANSWERED = "The tool answered. I report the result."

FAILED = "The tool failed. I report the error."

MISSING = "I have no tool for that. I say so."

REPETITIVE, ALIKE = 0.25, 0.1  # shares of the results and requests in training of few words


def unable(s: Scene, task: Task) -> bool:
    """Whether the tool is offered, but without an argument that the task needs."""
    tool = s.tool(task.kind)
    return tool is not None and bool(tool.renamed) and bool(set(task.args) - set(tool.renamed))


def perform(
    s: Scene, task: Task, label: str, refuse: float = 0.05, fail: float = 0.06
) -> str | None:
    """Pup calls the task's tool; returns the result, or None if the tool is not offered.

    `refuse`, `fail`: how often the call is not allowed, or the path or host is wrong.
    """
    tool = s.tool(task.kind)
    if tool is None:
        return None
    s.act(tool, task.args, task.want, label)
    kind = s.rng.random()
    if kind < refuse:
        result = results.refusal(s.words, tool.name)
    elif kind < refuse + fail and task.kind in ABOUT_PATHS and task.path != ".":
        result = results.path_error(s.words, task.kind, task.path)
    elif kind < refuse + 2 * fail and task.kind.startswith("http"):
        result = results.host_error(s.words, task.path)
    else:
        result = results.reminded(s.rng, answer(s, task))
    s.result(result)
    return result


def answer(s: Scene, task: Task) -> str:
    """The tool's result; in training sometimes of so few words that copying it is hard."""
    if s.held or s.rng.random() > REPETITIVE:
        return task.answer()
    with s.words.few(s.rng.randint(4, 20)):
        return task.answer()


def close(s: Scene, done: list[tuple[Task, str]], label: str) -> None:
    """The final answer about the results of one or more calls."""
    said = [report(task.kind, task.args, result) for task, result in done]
    failed = done[-1][1].startswith("Error: ")
    s.say("\n\n".join(said), FAILED if failed else ANSWERED, label + (" error" if failed else ""))


def no_tool(s: Scene) -> None:
    """Pup says that it lacks the tool."""
    s.say(NO_TOOL, MISSING, "no tool")


def make(s: Scene, style: Style = Style.ALONE, makers: dict[Maker, float] | None = None) -> Task:
    pool = makers or (tasks.MAKERS if s.held else tasks.PRACTICE)
    offered = {tool.kind for tool in s.tools}
    missing = s.rng.random() < (0.06 if s.held else 0.13)
    few = 0 if s.held or s.rng.random() > ALIKE else s.rng.randint(3, 10)
    tries = 60
    while True:
        with s.words.few(few):
            task = s.rng.choices(list(pool), list(pool.values()))[0](s, style)
        tries -= 1
        if (task.kind in offered) != missing or not tries:
            return task
