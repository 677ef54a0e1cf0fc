"""What must hold for every conversation, shown on real ones."""

import json
import re
from itertools import count
from pathlib import Path

import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.paths import Paths
from shepherd.events import CallbackEvent, FinishReason, Topic
from shepherd.session import Session
from shepherd.tools.runner import ToolRunner
from shepherd.transcript import SessionStore
from shepherd.turn import run_turn
from tests.examples import few
from tests.integration.conftest import SYSTEM, Recorder, assert_valid

ASK = "read notes.txt"
TURNS = few(300, 25)


async def test_a_tool_call_of_the_model_reads_a_real_file(
    backend: LlamaCppBackend, runner: ToolRunner, session: Session
) -> None:
    recorder = Recorder()
    outcome = await run_turn(session, ASK, backend, runner, recorder)
    assert outcome.finish_reason is FinishReason.STOP
    assert recorder.of(CallbackEvent.TOOL_CALL) == ['{"path": "notes.txt"}']
    assert recorder.of(CallbackEvent.TOOL_RESULT) == ["buy bread\ncall the shepherd"]
    assert "call the shepherd" in session.messages[-1].content


async def test_each_request_decodes_only_what_is_new(
    backend: LlamaCppBackend, runner: ToolRunner, session: Session
) -> None:
    """Between two generations only the new message and the template's seam are not cached."""
    used = 0
    for prompt in (ASK, "read todo.md", "list the files here", "thanks"):
        recorder = Recorder()
        await run_turn(session, prompt, backend, runner, recorder)
        for text in recorder.of(CallbackEvent.STATS):
            stats = json.loads(text)
            assert stats["cached_tokens"] >= used - 1
            used = stats["context_used"]
    assert used > 0


async def test_cancel_at_any_event_then_the_next_turn_works_and_the_file_loads(
    backend: LlamaCppBackend, runner: ToolRunner, tmp_path: Path
) -> None:
    tools = runner.registry.specs()
    store = SessionStore(Paths.from_env({"HOME": str(tmp_path)}).sessions)
    for index in count(step=few(1, 3)):
        transcript = store.create(tmp_path, "pup", SYSTEM, pytest.fail)
        session = Session(SYSTEM, tools=tools, journal=transcript, id=transcript.header.id)
        recorder = Recorder(cancel_at=index)
        outcome = await run_turn(session, ASK, backend, runner, recorder)
        cancelled = len(recorder.events) == index + 1
        assert (outcome.finish_reason is FinishReason.CANCELLED) == cancelled
        after = await run_turn(session, "thanks", backend, runner, Recorder())
        assert after.finish_reason is FinishReason.STOP
        transcript.close()
        again, saved = store.reopen(session.id, pytest.fail)
        again.close()
        assert list(saved.messages) == session.messages
        assert saved.warnings == ()
        assert_valid(session.messages)
        if not cancelled:
            assert index > len(CallbackEvent) / 2
            break


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", [2048], indirect=True)
async def test_many_turns_in_a_small_context(
    backend: LlamaCppBackend, runner: ToolRunner, session: Session, folder: Path
) -> None:
    prompts = [ASK, "hello", "write 'turn {}' to log.txt", "read log.txt", "list the files here"]
    evictions = 0
    for turn in range(TURNS):
        recorder = Recorder()
        prompt = prompts[turn % len(prompts)].format(turn)
        outcome = await run_turn(session, prompt, backend, runner, recorder)
        assert outcome.finish_reason is FinishReason.STOP, (turn, recorder.events)
        assert recorder.of(CallbackEvent.ERROR) == []
        evictions += sum(e[2] == Topic.EVICTION for e in recorder.events)
        assert_valid(session.messages)
    assert evictions > TURNS // 30
    assert f"turn {TURNS - 3}" in (folder / "log.txt").read_text()


@pytest.mark.parametrize("backend", [2048], indirect=True)
async def test_a_long_file_is_read_in_parts(
    backend: LlamaCppBackend, runner: ToolRunner, session: Session, folder: Path
) -> None:
    """The tool cuts its own text to what fits, so that its last line says how to go on."""
    lines = [f"line {n} of the long file" for n in range(1, 3001)]
    (folder / "notes.txt").write_text("\n".join(lines))
    recorder = Recorder()
    await run_turn(session, ASK, backend, runner, recorder)
    result = recorder.of(CallbackEvent.TOOL_RESULT)[0]
    shown = re.fullmatch(
        r".*\[lines 1-(\d+) of 3000; read on with offset=(\d+)\]", result, re.DOTALL
    )
    assert shown is not None
    assert result.startswith("\n".join(lines[: int(shown[1])]))
    assert int(shown[2]) == int(shown[1]) + 1
