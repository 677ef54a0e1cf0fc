"""Scenes with tools of clients, of names never seen."""

from training import lists, results
from training.answers import report
from training.dialogue import Scene
from training.phrasing import Phrases
from training.steps import ANSWERED, FAILED
from training.toolbox import Tool, catalogue_tool
from training.words import Words

MONTHS = ("january", "march", "april", "june", "july", "august", "october", "december")


def client(s: Scene) -> None:
    """A client's tool, of a name never seen."""
    tools = [tool for tool in s.tools if not tool.kind]
    if not tools:
        return
    tool = s.rng.choice(tools)
    text, values = _request(s, tool)
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
    if not s.held and rng.random() < 0.25 and (value := _odd_value(words, arg)):
        return value
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


def _odd_value(words: Words, arg: str) -> str:
    """A value of a form that is rare elsewhere; empty if `arg` takes another."""
    rng = words.rng
    if arg in lists.words("numeric arguments"):
        return ""
    if arg in ("date", "day", "when", "deadline", "due", "night"):
        return rng.choice(["tomorrow", "monday", "friday", "next week", "2025-03-14", "tonight",
                           f"{rng.randint(2020, 2030)}-{rng.randint(10, 12)}-{rng.randint(10, 28)}",
                           f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"])  # fmt: skip
    if arg in ("time", "at", "slot"):
        return f"{rng.randint(0, 23)}:{rng.randint(10, 59)}"
    if arg in ("to", "email", "recipient", "user", "user_id", "member"):
        return f"{words.word()}@{words.word()}.{rng.choice(['com', 'org', 'net'])}"
    return rng.choice([
        f"{words.word().upper()[:3]}-{rng.randint(1, 9999)}", f"{words.word()} {words.word()}",
        f"{words.word().capitalize()} {words.word().capitalize()} {words.word().capitalize()}",
        f"{words.word().capitalize()} {words.word()}", f"#{rng.randint(1, 9999)}",
        f"{words.word()}-{words.word()}", f"{words.word()} {rng.randint(1, 99)}",
    ])  # fmt: skip


def unoffered(s: Scene) -> str:
    """A request for a client's tool that is not on offer; empty if it might mean one that is."""
    tool = catalogue_tool(s.rng, "train")
    if tool.name in lists.words("doubtful tools") or any(
        tool.asks == other.asks for other in s.tools
    ):
        return ""
    return _request(s, tool)[0]


def _request(s: Scene, tool: Tool) -> tuple[str, list[str]]:
    """What the user says for a call of `tool`, and the values of its arguments."""
    values = [_value(s, arg) for arg in tool.args]
    text = Phrases(tool.asks, tool.asks if s.held else ()).pick(s.rng, held=s.held)
    for i, value in enumerate(values):
        text = text.replace(f"{{{i}}}", value)
    return text, values


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
