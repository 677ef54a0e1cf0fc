"""Writes rows of training: `python -m training.companion.rows --out FILE [--count N] [--held]`.

A row is a system message with its tools, read once, and several dialogues that each follow it as
if they were alone. The text is the one that Shepherd sends to this model.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.weights import SMOLLM2, model_file
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.text_model import TextModel
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import FinishReason, ignore_events
from shepherd.messages import Message, Role
from shepherd.sampling import Sampling
from shepherd.session import Session
from training.companion.dialogues import Group, group, questions
from training.companion.specs import messages, spec

HELD_SEED = 900_000_000
END = "<|im_end|>"
BRIEFLY = "You are a helpful assistant. Answer in one or two short sentences."
LONGEST_ANSWER = 80


@dataclass
class Row:
    """Tokens with their positions, the branch of each, and 1 where a token is the model's own."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    def add(self, tokens: Sequence[int], weights: Sequence[int], start: int, branch: int) -> None:
        """Appends a piece that stands at position `start` of its conversation."""
        self.tokens += tokens
        self.weights += weights
        self.positions += range(start, start + len(tokens))
        self.branches += [branch] * len(tokens)


class Renderer:
    """Conversations as the tokens that a model gets from Shepherd."""

    def __init__(self, text: TextModel) -> None:
        self._text = text

    async def tokens(self, session: Session, *, answer: bool) -> list[int]:
        """The whole prompt; with `answer` up to where the model begins to write."""
        rendered = await self._text.render(session, answer=answer)
        return await self._text.tokenize([rendered], begins=True)

    async def weighted(self, session: Session) -> tuple[list[int], list[int]]:
        """The tokens of a finished conversation, and 1 for those that the model writes."""
        (end,) = await self._text.tokenize([END])
        tokens = await self.tokens(session, answer=False)
        weights = [0] * len(tokens)
        for i, message in enumerate(session.messages):
            if message.role is Role.ASSISTANT:
                before = Session(session.system_message, session.messages[:i], session.tools)
                start = len(await self.tokens(before, answer=True))
                stop = tokens.index(end, start) + 1
                weights[start:stop] = [1] * (stop - start)
        return tokens, weights

    async def row(self, made: Group) -> Row:
        """The group as one row."""
        tools = [spec(tool) for tool in made.tools]
        row = Row()
        for branch, said in enumerate(made.dialogues, start=1):
            session = Session(made.system, messages(said, tools), tools)
            tokens, weights = await self.weighted(session)
            if not row.tokens:
                start = await self._first_user(session)
                row.add(tokens[:start], weights[:start], 0, 0)
            start = row.branches.count(0)
            row.add(tokens[start:], weights[start:], start, branch)
        return row

    async def _first_user(self, session: Session) -> int:
        """The number of tokens before the first message."""
        return len(
            await self.tokens(Session(session.system_message, [], session.tools), answer=False)
        )


async def own_answers(backend: LlamaCppBackend, asked: Sequence[str]) -> dict[str, str]:
    """The model's own answers, without those that are not finished."""
    found: dict[str, str] = {}
    for question in asked:
        session = Session(BRIEFLY, [Message.user(question)], sampling=Sampling(temperature=0.0))
        async with await backend.prefill_session(session, ignore_events) as prefilled:
            done = await backend.generate_from_prefilled(prefilled, ignore_events, LONGEST_ANSWER)
        if done.finish_reason is FinishReason.STOP and done.message.content:
            found[question] = done.message.content
    return found


async def write(args: argparse.Namespace) -> None:
    """Makes the rows and writes them."""
    section = LlamaCppSection(context_size=4096, cache_disk_mib=0, threads=1)
    backend = await LlamaCppBackend.load(args.model, section)
    try:
        answers = await own_answers(backend, questions(held=args.held))
        print(f"{len(answers)} open questions", flush=True)
        renderer = Renderer(backend.text_model)
        first = HELD_SEED if args.held else args.first
        with args.out.open("w") as out:
            for seed in range(first, first + args.count):
                made = group(seed, args.dialogues, answers, held=args.held)
                print(json.dumps(asdict(await renderer.row(made))), file=out)
    finally:
        await backend.aclose()


def main() -> None:
    """Reads the arguments and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=model_file(SMOLLM2))
    parser.add_argument("--count", type=int, default=800)
    parser.add_argument("--first", type=int, default=0, help="the first row's number")
    parser.add_argument("--dialogues", type=int, default=8, help="of a row")
    parser.add_argument("--held", action="store_true", help="of held-out words and tools")
    asyncio.run(write(parser.parse_args()))


if __name__ == "__main__":
    main()
