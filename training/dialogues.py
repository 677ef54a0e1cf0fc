"""Whole dialogues: a system message, tools on offer, scenes until the length asked for is full."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from training import clients, follow_ups, lists, scenes, sequences, talk
from training.dialogue import Message, Scene, render
from training.toolbox import OWN, Tool, alias, client_tool
from training.words import Words

SceneMaker = Callable[[Scene], None]
SCENES: dict[SceneMaker, float] = {
    scenes.single: 48,
    sequences.double: 10,
    sequences.write_then: 3,
    sequences.list_then_read: 3,
    scenes.vague: 1.5,
    scenes.added: 0.6,
    clients.client: 20,
    talk.beyond: 12,
    talk.chat: 8,
    talk.where: 0.5,
    talk.tell: 1.5,
    talk.ask: 1.5,
}
# In training the weak ones more often.
PRACTICE: dict[SceneMaker, float] = SCENES | {
    scenes.listed: 5,
    sequences.double: 15,
    sequences.list_then_read: 3.5,
    sequences.list_then_named: 2.5,
    sequences.then_it: 2.5,
    follow_ups.edit_it: 3,
    follow_ups.named_entry: 3,
    follow_ups.about_it: 2.5,
    follow_ups.delete_one: 1.5,
    follow_ups.search_again: 1.5,
    follow_ups.other: 1,
    follow_ups.there: 1,
    clients.client: 26,
    talk.beyond: 16,
    talk.chat: 9,
}
SYSTEM = (
    "You are Shepherd, an agent in the user's terminal. Use the tools to look before you answer; "
    "say plainly what you did. Working directory: {folder}"
)


@dataclass(frozen=True)
class Dialogue:
    """A finished dialogue."""

    system: str
    tools: list[Tool]
    messages: list[Message]

    def pieces(self) -> list[tuple[str, float]]:
        """Its text in pieces, with the weight of each in the loss."""
        return render(self.system, self.tools, self.messages)


def rule(words: Words) -> str:
    """A sentence of a system message that has nothing to do with Pup's work."""
    return _rule(words, words.rng.choice(lists.sections("texts")["rules"]))


def _rule(words: Words, text: str) -> str:
    while "{word}" in text:
        text = text.replace("{word}", words.word(), 1)
    return text.replace("{path}", words.path()).replace("{number}", str(words.rng.randint(1, 9999)))


def _system(words: Words, characters: int) -> tuple[str, str]:
    """A system message of about so many characters (0: any short one), and the folder it names."""
    rng = words.rng
    texts = lists.sections("texts")
    kind = rng.random()
    folder = ""
    text = ""
    if kind < 0.5:
        folder = "/" + words.folder().strip("/.~") + rng.choice(["", "/" + words.name()])
        text = SYSTEM.replace("{folder}", folder)
    elif kind < 0.85:
        text = _rule(words, rng.choice(texts["systems"]))
        if kind > 0.7:
            text += rng.choice([" ", "\n"]) + rule(words)
    parts: list[str] = []
    length = len(text)
    while length < characters:
        parts.append(rule(words) if rng.random() < 0.8 else words.sentence())
        length += len(parts[-1]) + 1
    if parts:
        between = rng.choice(["\n", "\n", " ", "\n\n"])
        text = between.join([text, *parts] if text else parts)
    return text, folder


def _tools(words: Words, *, few: bool) -> list[Tool]:
    rng = words.rng
    kind = rng.random()
    if kind < 0.07:
        return []
    tools = list(OWN)
    if few or kind < 0.3:
        tools = rng.sample(tools, rng.randint(1, 6 if few else 13))
    elif kind < 0.6:
        rng.shuffle(tools)
    if rng.random() < 0.15:
        tools = [alias(rng, tool) if rng.random() < 0.7 else tool for tool in tools]
    if rng.random() < 0.3:
        if rng.random() < 0.5:
            tools = []
        for _ in range(rng.randint(1, 5)):
            tools.insert(rng.randint(0, len(tools)), client_tool(words))
    return list({tool.name: tool for tool in tools}.values())


def _weights(scene: Scene, only: dict[SceneMaker, float]) -> dict[SceneMaker, float]:
    """The scenes that fit the tools on offer."""
    weights = dict(only)
    if not any(not tool.kind for tool in scene.tools):
        weights.pop(clients.client, None)
    if not any(tool.kind for tool in scene.tools):
        for maker in (
            scenes.single,
            sequences.double,
            sequences.write_then,
            sequences.list_then_read,
        ):
            weights[maker] = weights.get(maker, 0) * 0.1
    return weights


def dialogue(
    seed: int,
    measure: Callable[[str], int],
    size: int,
    *,
    held: bool = False,
    overfull: bool = False,
    only: dict[SceneMaker, float] | None = None,
) -> Dialogue:
    """A dialogue of at most about `size` tokens as `measure` counts them.

    `overfull`: the last scene may go beyond `size`, so that a row cut there has no padding.
    """
    rng = random.Random(seed)
    words = Words(rng, held=held)
    few = size < 300
    tools = _tools(words, few=few)
    wanted = 0
    if size >= 700 and rng.random() < 0.6:
        wanted = int(rng.uniform(0.1, 0.85) * size * 2.2)
    elif rng.random() < 0.1:
        wanted = rng.randint(50, 400)
    system, folder = _system(words, wanted)
    scene = Scene(words, tools, system, folder, long=size >= 700)
    scene.thinks = rng.choices([0.0, 1.0, 0.5], [0.82, 0.1, 0.08])[0]
    used = sum(measure(text) for text, _ in render(system, tools, []))
    weights = _weights(scene, only or SCENES)
    makers, shares = list(weights), list(weights.values())
    for _ in range(400):
        before = len(scene.messages)
        rng.choices(makers, shares)[0](scene)
        added = sum(measure(text) for text, _ in render("", [], scene.messages[before:]))
        used += added
        if used > size and not overfull:
            used -= added
            del scene.messages[before:]
            if scene.messages and rng.random() < 0.9:
                break
            scene.long = False
        if used > size - 40:
            break
    return Dialogue(system, tools, scene.messages)
