"""Scenes with tools of clients, of names never seen."""

from training import lists, results
from training.answers import report
from training.dialogue import Scene
from training.phrasing import Phrases
from training.steps import ANSWERED, FAILED
from training.toolbox import Tool


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
