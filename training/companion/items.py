"""What the companion is asked in its evaluation, and what would be right."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.session import Session
from training import asked, clients, lists, talk
from training.companion.specs import messages, spec, typed
from training.dialogue import Call
from training.dialogue import Message as Said
from training.dialogues import SYSTEM, Dialogue, SceneMaker, dialogue
from training.evaluate import FIRST_SEED
from training.toolbox import OWN

HOME = SYSTEM.replace("{folder}", "/home/ada/project")
UNSEEN_SEED = FIRST_SEED + 50_000
PUP_ONLY = frozenset({"beyond", "small talk"})
"""Replies in which Pup speaks of itself."""

# The second is for dialogues without a client's tool.
ONLY_CLIENTS: dict[SceneMaker, float] = {clients.client: 1.0, talk.ask: 1e-6}
Measure = Callable[[str], int]


@dataclass(frozen=True)
class Expected:
    """A right reply: one of `calls`, or an answer that has one of `words` or all of `lines`."""

    calls: tuple[Call, ...] = ()
    words: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """A prompt and what is expected; `kind` is its row in the table."""

    kind: str
    session: Session
    expected: Expected = field(default_factory=Expected)


def of_pup(measure: Measure, count: int) -> Iterator[Item]:
    """Replies of the dialogues of Pup's own evaluation, after the right ones."""
    for number in range(count):
        made = dialogue(FIRST_SEED + number, measure, 400, held=True)
        yield from _replies(made)


def unseen_tools(measure: Measure, count: int) -> Iterator[Item]:
    """Calls of tools whose names, arguments and phrasings do not occur in training."""
    found = 0
    seed = UNSEEN_SEED
    while found < count:
        made = dialogue(seed, measure, 250, held=True, only=ONLY_CLIENTS)
        seed += 1
        first = [item for item in _replies(made) if item.kind == "unseen tools: call"][:1]
        found += len(first)
        yield from first


def _replies(made: Dialogue) -> Iterator[Item]:
    tools = [spec(tool) for tool in made.tools]
    for number, said in enumerate(made.messages):
        if said.role != "assistant" or said.label in PUP_ONLY:
            continue
        before = _without_pup(made.messages[:number])
        session = Session(made.system, messages(before, tools), tools)
        yield Item(_kind(said), session, _expected(said, before, tools))


def _without_pup(said: list[Said]) -> list[Said]:
    """The messages without what is asked of Pup itself, and its replies to that."""
    kept: list[Said] = []
    for message in said:
        if message.label in PUP_ONLY:
            kept.pop()
        else:
            kept.append(message)
    return kept


def _kind(said: Said) -> str:
    if "client tool" in said.label:
        return f"unseen tools: {said.label.split()[0]}"
    if said.label.startswith(("call", "answer")):
        return {"call": "call", "answer": "answer after a result"}[said.label.split()[0]]
    return "tool not offered: no call" if said.label == "no tool" else "facts told"


def _expected(said: Said, before: list[Said], tools: list[ToolSpec]) -> Expected:
    if said.call is not None:
        return Expected((_typed(said.call, tools),))
    if said.label.startswith("answer"):
        lines = before[-1].content.removeprefix("Error: ").splitlines()
        return Expected(lines=tuple(line.strip() for line in lines[:10] if line.strip()))
    if said.label == "remembered":
        return Expected(words=(said.content.rpartition(" is ")[2].rstrip("."),))
    return Expected()


def _typed(call: Call, tools: list[ToolSpec]) -> Call:
    properties: JsonObject = next(
        (tool.parameters["properties"] for tool in tools if tool.name == call.name), {}
    )
    return Call(call.name, typed(call.args, properties))


def in_own_words(count: int) -> Iterator[Item]:
    """Requests that people wrote who had not seen the training, of the half never looked at."""
    tools = [spec(tool) for tool in OWN]
    lines = [line.split(" => ", 1) for line in lists.sections("asked")["requests"]]
    counted = [(said, wanted) for said, wanted in lines if not asked.was_seen(said)]
    for number in range(count):
        said, wanted = counted[number * len(counted) // count]
        calls = [asked.call_of(each.strip()) for each in wanted.split(" || ")]
        right = tuple(_typed(call, tools) for call in calls if call is not None)
        kind = "requests in people's own words" if right else "beyond tools: no call"
        yield Item(kind, Session(HOME, [Message.user(said)], tools), Expected(right))


def open_questions(count: int) -> Iterator[Item]:
    """Questions that need no tool, with all tools on offer."""
    tools = [spec(tool) for tool in OWN]
    for line in lists.sections("open")["held out"][:count]:
        question, words = line.split(" => ")
        session = Session(HOME, [Message.user(question)], tools)
        yield Item("open questions", session, Expected(words=tuple(words.split("|"))))
