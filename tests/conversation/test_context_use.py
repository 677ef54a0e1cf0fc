"""The tokens of each part of a prompt, counted with a real model's template."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from shepherd.backends.base import Backend
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.conversation.context_use import ContextUse, measure_context, measure_tools
from shepherd.conversation.session_start import SYSTEM_MESSAGE
from shepherd.events import CallbackEvent, Event, Topic
from shepherd.knowledge import instructions
from shepherd.knowledge.instructions import Instructions
from shepherd.messages import Message
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.session import Session
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from shepherd.turn import TurnLimits, run_turn
from tests.flat_events import flat

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = "# Rules\nUse tabs. Run `make test` before each commit.\n"
SKILLS = [f"- skill-{n}: Does a thing of kind {n}." for n in range(5)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pup() -> AsyncGenerator[Backend]:
    section = LlamaCppSection(threads=1, context_size=2048, cache_disk_mib=0)
    backend = await LlamaCppBackend.load(builtin_model(), section, name=BUILTIN_NAME)
    yield backend
    await backend.aclose()


def session(*messages: Message) -> Session:
    files = [
        Instructions("~/.config/shepherd/AGENTS.md", Path("/u"), "Be brief.", of_user=True),
        Instructions("AGENTS.md", Path("/p"), AGENTS),
    ]
    system = instructions.join(SYSTEM_MESSAGE.format(cwd="/home/ann/shop"), files, SKILLS)
    return Session(system, list(messages), default_registry().specs(), id="one")


def tokens(use: ContextUse) -> dict[str, int]:
    return {part.name: part.tokens for part in use.parts}


async def test_each_part_is_exact_before_the_first_turn(pup: Backend) -> None:
    asked = session()
    use = await measure_context(asked, pup)
    assert use.used == await pup.count_session_tokens(asked)
    assert use.used == sum(part.tokens for part in use.parts)
    assert use.error is None
    counted = tokens(use)
    assert list(counted) == [
        *("system message", "~/.config/shepherd/AGENTS.md", "AGENTS.md", "skills", "tools"),
        *("your messages", "answers", "tool results", "template"),
    ]
    for part in instructions.parts(asked.system_message):
        text = asked.system_message.replace(f"\n{part.block}", "")
        without = await pup.count_session_tokens(replace(asked, system_message=text))
        assert abs(counted[part.name] - (use.used - without)) <= 1  # tokens join at the seam
    tools = await measure_tools(asked, pup)
    assert [part.name for part in tools] == default_registry().names
    assert sum(part.tokens for part in tools) == counted["tools"]


async def test_the_prompt_has_as_many_tokens_as_were_counted(pup: Backend, tmp_path: Path) -> None:
    asked = session()
    before = (await measure_context(asked, pup)).used
    prompt = Message.user("Summarize this: " + "lorem ipsum " * 20)
    read: list[tuple[int, int]] = []
    stats: list[dict[str, int]] = []

    def listen(event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if name == Topic.PREFILL:
            read.append((int(content.partition("/")[0]), asked.ledger.context_used))
        if kind is CallbackEvent.STATS:
            stats.append(json.loads(content))
        return not stats

    policy = PermissionPolicy(tmp_path)
    tools = ToolRunner(ToolRegistry(), policy, DenyingApprover(), ToolContext(tmp_path, tmp_path))
    await run_turn(asked, prompt, pup, tools, listen, TurnLimits(max_tokens=4))
    assert stats[0]["prompt_tokens"] == before + await pup.count_message_tokens(asked, prompt)
    assert read
    assert all(done == noted for done, noted in read)
    use = await measure_context(asked, pup)
    assert use.used == sum(part.tokens for part in use.parts)
    assert tokens(use)["your messages"] == await pup.count_message_tokens(asked, prompt)
    assert use.read == stats[0]["context_used"]


async def test_text_that_the_template_leaves_out_is_not_counted(pup: Backend) -> None:
    thought = Message.assistant("Yes.", "a long thought " * 30)
    asked = session(Message.user("one"), thought, Message.user("two"), Message.assistant("No."))
    use = await measure_context(asked, pup)
    assert use.used == await pup.count_session_tokens(asked)
    assert use.used == sum(part.tokens for part in use.parts)


async def test_a_session_that_does_not_fit_is_counted_too(pup: Backend) -> None:
    asked = session(Message.user("many words " * 2000))
    use = await measure_context(asked, pup)
    assert use.used == sum(part.tokens for part in use.parts) > use.size
    assert use.free == 0
