"""The companion's rows, its adapter file, and its training on a random model."""

import asyncio
from collections.abc import Coroutine
from itertools import groupby, pairwise
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.model import Adapter, NativeAdapters, NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.text_model import TextModel
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import Message, Role, ToolCall
from shepherd.models import builtin_model
from shepherd.session import Session
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.support import settings
from training.companion.dialogues import Group, group
from training.companion.evaluate import judge
from training.companion.export import write_adapter
from training.companion.items import Expected, of_pup, unseen_tools
from training.companion.rows import END, Renderer, Row
from training.companion.specs import messages, spec
from training.dialogue import Call

T = TypeVar("T")
PROMPT = [30, 40, 50, 60, 61, 62]
SHAPES = {
    "attn_q": (tiny.WIDTH, tiny.WIDTH),
    "attn_k": (tiny.WIDTH, tiny.WIDTH),
    "attn_v": (tiny.WIDTH, tiny.WIDTH),
    "attn_output": (tiny.WIDTH, tiny.WIDTH),
    "ffn_gate": (tiny.FEED_FORWARD, tiny.WIDTH),
    "ffn_up": (tiny.FEED_FORWARD, tiny.WIDTH),
    "ffn_down": (tiny.WIDTH, tiny.FEED_FORWARD),
}


def with_text(work: "Work[T]") -> T:
    async def run() -> T:
        section = LlamaCppSection(context_size=2048, cache_disk_mib=0)
        backend = await LlamaCppBackend.load(builtin_model(), section)
        try:
            return await work(backend.text_model)
        finally:
            await backend.aclose()

    return asyncio.run(run())


class Work(Protocol[T]):
    def __call__(self, text: TextModel) -> Coroutine[object, object, T]: ...


def session_of(made: Group, number: int) -> Session:
    tools = [spec(tool) for tool in made.tools]
    return Session(made.system, messages(made.dialogues[number], tools), tools)


def calls_and_answers(session: Session) -> list[str]:
    written: list[str] = []
    for message in session.messages:
        for call in message.tool_calls:
            body = f'{{"name": "{call.name}", "arguments": {call.arguments_json}}}'
            written.append(f"<tool_call>\n{body}\n</tool_call>{END}")
        if message.role is Role.ASSISTANT and not message.tool_calls:
            written.append(f"{message.content}{END}")
    return written


@pytest.mark.parametrize("seed", range(4))
def test_only_the_models_own_tokens_have_a_weight(seed: int) -> None:
    made = group(seed, 3, {"What is gravity?": "A force."})

    async def work(text: TextModel) -> None:
        renderer = Renderer(text)
        for number in range(3):
            session = session_of(made, number)
            tokens, weights = await renderer.weighted(session)
            runs = groupby(zip(tokens, weights, strict=True), key=lambda pair: pair[1])
            own = [[token for token, _ in run] for weight, run in runs if weight]
            texts = [b"".join(await text.pieces(run)).decode() for run in own]
            assert texts == calls_and_answers(session)

    with_text(work)


@pytest.mark.parametrize("seed", range(4))
def test_each_branch_of_a_row_is_a_conversation(seed: int) -> None:
    made = group(seed, 3, {})

    async def work(text: TextModel) -> tuple[Row, list[list[int]]]:
        renderer = Renderer(text)
        whole = [await renderer.tokens(session_of(made, i), answer=False) for i in range(3)]
        return await renderer.row(made), whole

    row, whole = with_text(work)
    for branch, tokens in enumerate(whole, start=1):
        seen = [i for i, owner in enumerate(row.branches) if owner in (0, branch)]
        assert [row.tokens[i] for i in seen] == tokens
        assert [row.positions[i] for i in seen] == list(range(len(tokens)))


def test_the_arguments_fit_the_schemas() -> None:
    for seed in range(60):
        made = group(seed, 2, {})
        tools = {tool.name: spec(tool) for tool in made.tools}
        for said in made.dialogues:
            for message in messages(said, list(tools.values())):
                for call in message.tool_calls:
                    schema = tools[call.name].parameters
                    assert set(schema.get("required", ())) <= set(call.arguments)
                    assert set(call.arguments) <= set(schema["properties"])


def measure(text: str) -> int:
    return len(text) // 3


def test_the_evaluation_uses_no_pup_talk() -> None:
    items = [*of_pup(measure, 12), *unseen_tools(measure, 3)]
    assert {item.session.messages[-1].role for item in items} <= {Role.USER, Role.TOOL}
    for item in items:
        roles = [message.role for message in item.session.messages]
        assert all((a, b) != (Role.USER, Role.USER) for a, b in pairwise(roles))


def test_replies_are_judged() -> None:
    right = Expected((Call("list_directory", {"path": "."}), Call("glob", {"pattern": "*"})))
    call = Message.assistant("", tool_calls=(ToolCall("1", "list_directory", {}),))
    assert judge(right, call) == (True, True)
    other = Message.assistant("", tool_calls=(ToolCall("1", "glob", {"pattern": "?"}),))
    assert judge(right, other) == (False, True)
    assert judge(right, Message.assistant("done")) == (False, False)
    assert judge(Expected(words=("Rome",)), Message.assistant("It is rome.")) == (True, True)
    assert judge(Expected(words=("9",)), Message.assistant("It is 19.")) == (False, True)
    assert judge(Expected(words=("Rome",)), call) == (False, False)
    assert judge(Expected(lines=("a", "b")), Message.assistant("a\nb")) == (True, True)
    assert judge(Expected(lines=("a", "b")), Message.assistant("a")) == (False, True)


def logits(path: Path, *adapters: Adapter) -> list[float]:
    model = NativeModel(path, model_params(settings(), {}))
    on_model = NativeAdapters(model, adapters)
    context = NativeContext(model, context_params(settings(), 1, model.traits))
    on_model.apply(context.handle)
    context.decode([Span(0, 0, PROMPT, wants_logits=True)])
    found = context.logits(len(PROMPT) - 1, model.vocab.size)
    context.close()
    model.close()
    return found


def test_the_adapter_adds_to_all_matrices_in_llama_cpp(tmp_path: Path) -> None:
    rank, alpha = 4, 8.0
    random = np.random.default_rng(0)
    matrices: dict[str, np.ndarray] = {}
    deltas: dict[str, np.ndarray] = {}
    for i in range(tiny.LAYERS):
        for name, (rows, columns) in SHAPES.items():
            a = random.standard_normal((rank, columns)).astype(np.float16)
            b = (random.standard_normal((rows, rank)) / columns).astype(np.float16)
            matrices[f"blk.{i}.{name}.weight.lora_a"] = a.astype(np.float32)
            matrices[f"blk.{i}.{name}.weight.lora_b"] = b.astype(np.float32)
            deltas[f"blk.{i}.{name}"] = alpha / rank * b.astype(np.float32) @ a.astype(np.float32)
    path = tmp_path / "adapter.gguf"
    size = write_adapter(path, matrices, alpha)
    assert size == path.stat().st_size
    model = tiny.write_llama(tmp_path / "model.gguf")
    merged = tiny.write_llama(tmp_path / "merged.gguf", deltas=deltas)
    found = logits(model, Adapter(path))
    assert found == pytest.approx(logits(merged), abs=2e-2)
    assert found != pytest.approx(logits(model), abs=1e-1)
