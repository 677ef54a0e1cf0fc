"""Groups of dialogues that share a system message and its tools, as the adapter is trained on."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from training import clients, follow_ups, lists, scenes, sequences, talk
from training.dialogue import Message, Scene
from training.dialogues import SYSTEM, SceneMaker
from training.toolbox import OWN, Tool, alias, client_tool
from training.words import Words

# What Pup refuses or says about itself is left out: the companion answers that in its own words.
SCENES: dict[SceneMaker, float] = {
    scenes.single: 48,
    scenes.listed: 4,
    sequences.double: 10,
    sequences.list_then_read: 3,
    follow_ups.edit_it: 2,
    follow_ups.named_entry: 2,
    clients.client: 30,
    talk.ask: 3,
}
LONGEST = 500  # characters of a dialogue
QUESTIONS = 0.15  # share of the dialogues that are an open question
MISSING = 0.3  # share that is kept of the dialogues in which a tool is missing
PLAIN = SYSTEM.partition(" Working directory")[0]


@dataclass(frozen=True)
class Group:
    """A system message, its tools, and dialogues that follow it."""

    system: str
    tools: list[Tool]
    dialogues: list[list[Message]]


def questions(*, held: bool) -> tuple[str, ...]:
    """The open questions; words of a right answer follow those held out, after ` => `."""
    lines = lists.sections("open")["held out" if held else "train"]
    return tuple(line.partition(" => ")[0] for line in lines)


def offered(words: Words) -> list[Tool]:
    """Few tools, some, or all that Shepherd has; sometimes renamed, often with a client's."""
    rng = words.rng
    kind = rng.random()
    tools = list(OWN)
    if kind < 0.5:
        tools = rng.sample(tools, rng.randint(1, 4) if kind < 0.3 else rng.randint(5, 9))
    if kind < 0.15:
        tools = []
    if rng.random() < 0.15:
        tools = [alias(rng, tool) if rng.random() < 0.5 else tool for tool in tools]
    if kind < 0.15 or rng.random() < 0.4:
        for _ in range(rng.randint(1, 4)):
            tools.insert(rng.randint(0, len(tools)), client_tool(words))
    return list({tool.name: tool for tool in tools}.values())


def group(seed: int, count: int, answers: dict[str, str], *, held: bool = False) -> Group:
    """A group of `count` dialogues; `answers` are the model's own to the open questions."""
    rng = random.Random(seed)
    words = Words(rng, held=held)
    tools = offered(words)
    folder = "/" + words.folder().strip("/.~") if rng.random() < 0.6 else ""
    system = SYSTEM.replace("{folder}", folder) if folder else PLAIN
    makers = _fitting(tools)
    asked = [question for question in questions(held=held) if question in answers]
    dialogues: list[list[Message]] = []
    while len(dialogues) < count:
        if asked and rng.random() < QUESTIONS:
            question = rng.choice(asked)
            own = Message("assistant", answers[question], label="open")
            dialogues.append([Message("user", question), own])
        elif said := _dialogue(Scene(words, tools, system, folder), makers):
            dialogues.append(said)
    return Group(system, tools, dialogues)


def _fitting(tools: list[Tool]) -> dict[Callable[[Scene], None], float]:
    """The scenes that fit the tools on offer."""
    makers = dict(SCENES)
    if all(tool.kind for tool in tools):
        makers.pop(clients.client)
    if not any(tool.kind for tool in tools):
        makers = {clients.client: 9, talk.ask: 1, scenes.single: 1}
    return makers


def _dialogue(scene: Scene, makers: dict[Callable[[Scene], None], float]) -> list[Message]:
    """One dialogue; empty if it came out too long or with nothing in it.

    Most of those in which a tool is missing are left out: else the model misses tools that it has.
    """
    scene.rng.choices(list(makers), list(makers.values()))[0](scene)
    length = sum(len(message.body()) for message in scene.messages)
    missing = any(message.label == "no tool" for message in scene.messages)
    skipped = missing and scene.rng.random() > MISSING
    return scene.messages if length <= LONGEST and not skipped else []
