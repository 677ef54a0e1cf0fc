"""Conversations of agents, drawn from the sizes of recorded sessions."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.replay.sessions import sessions

FILE = Path(__file__).with_name("sessions.json")
CHARACTERS_PER_TOKEN = 4
BLOCK_TOKENS = 256
"""The tokens of one hash: 1,024 characters."""

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


class Load(NamedTuple):
    """Conversations as arrays; each is one of a few sessions behind the opening of one agent.

    By conversation: `agent`, `session`, `begin` in seconds, `request` (the number of its first
    request), `key`. By session: `start` of its steps, which end where those of the next one start.
    By step: tokens of the prompt without the opening, of the answer, and the blocks of the
    prompt. By request: the `pause` before it, and a `chance` from 0 to 1. By agent: the tokens of
    its opening, and their blocks.
    """

    agent: Sequence[int]
    session: Sequence[int]
    begin: Sequence[float]
    request: Sequence[int]
    key: Sequence[int]
    start: Sequence[int]
    prompt: Sequence[int]
    answer: Sequence[int]
    blocks: Sequence[int]
    pause: Sequence[float]
    chance: Sequence[float]
    opening: Sequence[int]
    opening_blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a conversation: its new tokens, the tokens of its answer, who comes before."""

    new: int
    answer: int
    user: bool


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


def recorded_sessions() -> tuple[list[int], list[list[Step]]]:
    """The tokens of the openings, and the steps of the sessions."""
    content = json.loads(FILE.read_text())
    recorded = [[Step(*step) for step in session] for session in content["sessions"]]
    return list(content["first_prompts"].values()), recorded


def steady_load(conversations: int, seconds_between: float, seed: int) -> Load:
    """Conversations that begin at random, in the mean so many seconds after each other."""
    openings, recorded = recorded_sessions()
    random = np.random.default_rng(seed)
    agent: Any = random.integers(len(openings), size=conversations)
    session: Any = random.integers(len(recorded), size=conversations)
    begin: Any = np.cumsum(random.exponential(seconds_between, conversations))
    request = _first_requests(session, recorded)
    total = int(request[-1]) + len(recorded[int(session[-1])])
    medians: list[Any] = [
        np.asarray([_USER_SECONDS if step.user else _TOOL_SECONDS for step in steps])
        for steps in recorded
    ]
    pause: Any = np.concatenate([medians[number] for number in session])
    pause *= np.exp(random.normal(0.0, _SPREAD, total))
    key: Any = random.integers(1, 2**64, size=conversations, dtype=np.uint64)
    chance: Any = random.random(total)
    conversations_of = (agent, session, begin, request, key)
    return Load(*conversations_of, *_steps(recorded), pause, chance, *_of(openings))


def load_at_once(conversations: int, steps: Sequence[Step]) -> Load:
    """Conversations of the same steps that begin together and never pause."""
    zeros: Any = np.zeros(conversations, dtype=np.int64)
    request: Any = np.arange(conversations) * len(steps)
    total = conversations * len(steps)
    key: Any = np.arange(1, conversations + 1, dtype=np.uint64)
    chance: Any = np.random.default_rng(0).random(total)
    begin: Any = np.zeros(conversations)
    pause: Any = np.zeros(total)
    return Load(zeros, zeros, begin, request, key, *_steps([steps]), pause, chance, *_of([1]))


def _first_requests(session: Any, recorded: Sequence[Sequence[Step]]) -> Any:
    lengths = np.asarray([len(steps) for steps in recorded])[session]
    return np.cumsum(lengths) - lengths


def _steps(recorded: Sequence[Sequence[Step]]) -> tuple[Any, Any, Any, Any]:
    """Starts, tokens of prompts and answers, and blocks; a message begins a new block."""
    starts, prompts, answers, blocks = [0], list[int](), list[int](), list[int]()
    for steps in recorded:
        tokens = count = 0
        for step in steps:
            tokens, count = tokens + step.new, count + blocks_of(step.new)
            prompts.append(tokens)
            answers.append(step.answer)
            blocks.append(count)
            tokens, count = tokens + step.answer, count + blocks_of(step.answer)
        starts.append(len(prompts))
    return np.asarray(starts), np.asarray(prompts), np.asarray(answers), np.asarray(blocks)


def _of(openings: Sequence[int]) -> tuple[Any, Any]:
    return np.asarray(openings), np.asarray([blocks_of(tokens) for tokens in openings])


def blocks_of(tokens: int) -> int:
    """The blocks of a text."""
    return max(1, -(-tokens // BLOCK_TOKENS))


def as_lists(load: Load) -> Load:
    """The same in lists, which Python reads faster than arrays."""
    return Load._make([np.asarray(values).tolist() for values in load])
