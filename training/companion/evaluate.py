"""Scores a model through Shepherd: `python -m training.companion.evaluate [--adapter GGUF]`.

Greedy, with the call grammar that Shepherd has by itself. Histories are teacher-forced: each reply
is asked for after the right ones. Prints a table in Markdown.
"""

import argparse
import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
from msgspec.structs import replace

from bench.weights import PUP, SMOLLM2, model_file
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import ignore_events
from shepherd.messages import JsonObject, Message
from shepherd.sampling import Sampling
from training.companion.items import (
    Expected,
    Item,
    Measure,
    in_own_words,
    of_pup,
    open_questions,
    unseen_tools,
)

LONGEST_REPLY = 160


@dataclass(frozen=True)
class Score:
    """One reply: whether it was right, and for a call whether at least the tool was."""

    kind: str
    right: bool
    tool: bool


def judge(expected: Expected, reply: Message) -> tuple[bool, bool]:
    """Whether the reply is right, and whether it calls the right tool, or none if none is."""
    if expected.calls:
        if len(reply.tool_calls) != 1:
            return False, False
        made = reply.tool_calls[0]
        named = [call for call in expected.calls if call.name == made.name]
        right = any(_plain(call.args) == _plain(made.arguments) for call in named)
        return right, bool(named)
    if reply.tool_calls:
        return False, False
    text = reply.content
    if expected.words:
        return any(_has(text, word) for word in expected.words), True
    return bool(text.strip()) and all(line in text for line in expected.lines), True


def _plain(arguments: JsonObject) -> JsonObject:
    """The arguments without a path that says what its absence says."""
    return {k: v for k, v in arguments.items() if (k, v) != ("path", ".")}


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}", text, re.IGNORECASE) is not None


def table(scores: Iterable[Score]) -> str:
    """The results by kind."""
    kinds: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        kinds[score.kind].append(score)
    lines = ["| kind | replies | right | right tool, or rightly none |", "|---|---|---|---|"]
    for kind, found in sorted(kinds.items()):
        right, tool = sum(each.right for each in found), sum(each.tool for each in found)
        lines.append(f"| {kind} | {len(found)} | {right} | {tool} |")
    return "\n".join(lines)


async def reply(backend: LlamaCppBackend, item: Item) -> Message:
    """The greedy reply to an item."""
    session = replace(item.session, sampling=Sampling(temperature=0.0))
    async with await backend.prefill_session(session, ignore_events) as prefilled:
        done = await backend.generate_from_prefilled(prefilled, ignore_events, LONGEST_REPLY)
    return done.message


def items(measure: Measure, args: argparse.Namespace) -> Iterator[Item]:
    """All items of this run."""
    yield from in_own_words(args.asked)
    yield from open_questions(args.open)
    yield from unseen_tools(measure, args.unseen)
    yield from of_pup(measure, args.dialogues)


async def evaluate(args: argparse.Namespace) -> None:
    """Asks, judges, prints."""
    vocabulary = llama_cpp.Llama(str(model_file(PUP)), vocab_only=True, verbose=False)

    def measure(text: str) -> int:
        return len(vocabulary.tokenize(text.encode(), add_bos=False, special=True))

    adapters = [str(args.adapter.resolve())] if args.adapter else []
    section = LlamaCppSection(
        context_size=4096, cache_disk_mib=0, threads=args.threads, lora=adapters
    )
    backend = await LlamaCppBackend.load(args.model, section)
    scores: list[Score] = []
    start = time.monotonic()
    try:
        for item in items(measure, args):
            got = await reply(backend, item)
            right, tool = judge(item.expected, got)
            scores.append(Score(item.kind, right, tool))
            if args.replies:
                _note(args.replies, item, got, right=right)
    finally:
        await backend.aclose()
    print(f"{len(scores)} replies, {time.monotonic() - start:.0f} s\n\n{table(scores)}")


def _note(path: Path, item: Item, got: Message, *, right: bool) -> None:
    """Appends a reply to a file of JSON lines."""
    line = {
        "kind": item.kind,
        "asked": item.session.messages[-1].content,
        "right": right,
        "content": got.content,
        "calls": [[call.name, call.arguments] for call in got.tool_calls],
        "wanted": [[call.name, call.args] for call in item.expected.calls],
    }
    with path.open("a") as file:
        print(json.dumps(line, ensure_ascii=False), file=file)


def main() -> None:
    """Reads the arguments and evaluates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=model_file(SMOLLM2))
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--asked", type=int, default=60, help="requests in people's own words")
    parser.add_argument("--open", type=int, default=30, help="open questions")
    parser.add_argument("--unseen", type=int, default=24, help="calls of unseen tools")
    parser.add_argument("--dialogues", type=int, default=24, help="of Pup's evaluation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--replies", type=Path, help="a file that gets every reply")
    asyncio.run(evaluate(parser.parse_args()))


if __name__ == "__main__":
    main()
