"""The synthetic dialogues: deterministic, and every label follows from what stands before it."""

import json
import re
from collections.abc import Iterator
from functools import cache

import pytest

from training.answers import BEYOND, MORE, NO_TOOL, SHOWN_LINES
from training.dialogue import Message
from training.dialogues import PRACTICE, Dialogue, dialogue
from training.file_tasks import LANGUAGES

OF_LANGUAGES = {f"**/*.{ending}" for ending in LANGUAGES.values()}  # "all python files"
NAMED_OTHERWISE = ("..", "~", "")  # "the parent folder", "my home", and a text to be removed
COMMANDS = r"^(python|sh|node|mv|cp|mkdir -p|tail -n|wc -\w|du -h|echo ['\"]) ?"
SIZES = (250, 600, 1500)


def measure(text: str) -> int:
    return len(text) // 3


def made(seed: int, *, held: bool = False) -> Dialogue:
    only = None if held else PRACTICE
    return dialogue(seed, measure, SIZES[seed % len(SIZES)], held=held, only=only)


@cache
def dialogues() -> list[Dialogue]:
    return [made(seed, held=seed % 2 == 0) for seed in range(240)]


def replies() -> Iterator[tuple[Dialogue, int, Message]]:
    for each in dialogues():
        for i, message in enumerate(each.messages):
            if message.role == "assistant":
                yield each, i, message


def test_the_same_seed_gives_the_same_dialogue() -> None:
    for seed in range(12):
        assert made(seed).pieces() == made(seed).pieces()
    assert made(0).pieces() != made(1).pieces()


def test_a_call_names_an_offered_tool_and_only_its_arguments() -> None:
    for each, _, message in replies():
        if message.call is None:
            continue
        tool = {tool.name: tool for tool in each.tools}[message.call.name]
        known = {arg.rstrip("?") for arg in tool.args}
        required = {arg for arg in tool.args if not arg.endswith("?")}
        assert required <= set(message.call.args) <= known


def test_every_argument_stands_in_the_conversation() -> None:
    for each, i, message in replies():
        if message.call is None:
            continue
        said = "\n".join(m.content or m.body() for m in each.messages[:i])
        for name, value in message.call.args.items():
            if isinstance(value, bool) or value in OF_LANGUAGES or value in NAMED_OTHERWISE:
                continue
            first = message.call.args.get("offset")
            if name == "limit" and isinstance(first, int) and isinstance(value, int):
                last = first + value - 1  # "lines 10 to 20"
                assert str(value) in said or str(last) in said
                continue
            # Paths are joined from folder and entry, patterns made from extensions, commands from
            # verbs.
            made = re.sub(COMMANDS, "", str(value)).replace("' >> ", " ").replace('" >> ', " ")
            parts = re.split(r"[/ ]|\*\*/\*?", made)
            assert str(value) in said or all(part in said for part in parts), (value, said)


def test_a_call_is_answered_by_a_result_and_a_result_by_pup() -> None:
    for each in dialogues():
        roles = [message.role for message in each.messages]
        for message, role, after in zip(each.messages, roles, [*roles[1:], "user"], strict=True):
            follows = {"user": "assistant", "tool": "assistant"}.get(role, "user")
            assert after == ("tool" if message.call else follows)


def test_calls_are_json_in_the_one_form() -> None:
    for _, _, message in replies():
        if message.call:
            body = message.body().removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
            call = {"name": message.call.name, "arguments": message.call.args}
            assert body == json.dumps(call, ensure_ascii=False)


def test_answers_restate_lines_of_the_result() -> None:
    for each, i, message in replies():
        before = each.messages[i - 1]
        if before.role != "tool" or message.call or message.label.startswith("answer two"):
            continue
        shown = message.content.split("\n")[1:]
        result = before.content.split("\n")
        assert len(shown) <= SHOWN_LINES + 1
        for line in shown:
            assert line == MORE or line in result or line.removeprefix("- ") in result


@pytest.mark.parametrize(("label", "text"), [("beyond", BEYOND), ("no tool", NO_TOOL)])
def test_honest_answers_are_always_the_same_words(label: str, text: str) -> None:
    found = [message for _, _, message in replies() if message.label == label]
    assert found
    assert {message.content for message in found} == {text}


def test_errors_are_reported() -> None:
    errors = 0
    for each, i, message in replies():
        before = each.messages[i - 1]
        if before.role == "tool" and before.content.startswith("Error: ") and not message.call:
            errors += 1
            assert before.content.removeprefix("Error: ").split("\n")[0] in message.content
    assert errors > 10
