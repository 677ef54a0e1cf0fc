"""Conversations of agents, drawn from the sizes of recorded sessions."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.replay.sessions import sessions

FILE = Path(__file__).with_name("sessions.json")
CHARACTERS_PER_TOKEN = 4
FIRST_PROMPTS = {
    "continue": 797,
    "pi": 1_357,
    "cline": 2_634,
    "opencode": 4_996,
    "Codex": 9_800,
    "gemini-cli": 12_100,
    "qwen-code": 20_153,
    "Claude Code": 22_618,
}
"""Tokens of the first prompts of agents: the system message and the tools, mostly."""

_TOOL_SECONDS, _USER_SECONDS, _SPREAD = 2.0, 40.0, 1.0
"""The medians of the pauses before results of tools and messages of users; no record has any."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a conversation: its new tokens, the tokens of its answer, who comes before."""

    new: int
    answer: int
    user: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of one agent; `opening` tokens are those of all with this `agent`."""

    number: int
    agent: int
    opening: int
    steps: Sequence[Step]


def record() -> None:
    """Write the sizes of the sessions of `bench.replay`, and of the first prompts of agents."""
    recorded = [
        [
            [_tokens(turn.user), max(1, _tokens(turn.assistant)), not turn.user.startswith("<tool")]
            for turn in session.turns
        ]
        for session in sessions()
    ]
    source = "bench/replay/sessions.py; first prompts of agents as recorded in November 2026"
    content = {"source": source, "first_prompts": FIRST_PROMPTS, "sessions": recorded}
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def _tokens(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


class Workload:
    """Draws conversations; the same seed draws the same ones, each by its number."""

    def __init__(self, seed: int = 0) -> None:
        content = json.loads(FILE.read_text())
        self._openings: list[int] = list(content["first_prompts"].values())
        self._sessions = [[Step(*step) for step in session] for session in content["sessions"]]
        self._seed = seed

    @property
    def mean_steps(self) -> float:
        """The mean number of requests of a conversation."""
        return sum(map(len, self._sessions)) / len(self._sessions)

    def conversation(self, number: int) -> Conversation:
        """The conversation with a number."""
        chance = random.Random(self._seed * 1_000_003 + number)
        agent = chance.randrange(len(self._openings))
        steps = chance.choice(self._sessions)
        return Conversation(number, agent, self._openings[agent], steps)

    def pause(self, chance: random.Random, step: Step) -> float:
        """The seconds before a step."""
        median = _USER_SECONDS if step.user else _TOOL_SECONDS
        return median * math.exp(chance.gauss(0, _SPREAD))
