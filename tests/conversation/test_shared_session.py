"""What a shared session does to the conversation that it shares."""

import asyncio
import warnings
from pathlib import Path

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.conversation.shared.requests import State
from shepherd.conversation.shared.session import SessionActions, SharedSession
from shepherd.conversation.shared.updates import UpdateKind
from shepherd.events import FinishReason
from shepherd.messages import Message, Role, ToolCall
from shepherd.session import Session
from shepherd.tools.permissions.approval import ApprovalRequest, Choice
from shepherd.transcript import SessionStore
from tests.patience import PATIENCE
from tests.server.conversation.harness import HeldConversation


async def test_it_listens_to_the_session_only_while_it_serves(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    transcript = store.create(tmp_path, "pup", "", warnings.warn)
    session = Session(id=transcript.header.id, journal=transcript)
    backend = ScriptedBackend(parse_script("text: hi"))
    held = HeldConversation(session, tmp_path, backend)
    shared = SharedSession(held.shared, held.actions, backend)
    assert session.journal is transcript, "a constructor changes none of its arguments"
    session.add(Message.user("before"))
    assert shared.log.last == 0
    async with shared:
        session.add(Message.user("while"))
        assert shared.log.last == 1
    assert session.journal is transcript
    session.add(Message.user("after"))
    assert shared.log.last == 1
    transcript.close()
    saved = store.read(transcript.header.id)
    assert [message.content for message in saved.messages] == ["before", "while", "after"]


async def test_only_the_client_of_the_running_request_steers_it(tmp_path: Path) -> None:
    session = Session()
    script = "text: one\ndelay: 600\n---\ntext: two\n---\ntext: three"
    backend = ScriptedBackend(parse_script(script))
    conversation = HeldConversation(session, tmp_path, backend)
    async with SharedSession(conversation.shared, conversation.actions, backend) as shared:
        first = shared.submit("hello", "me")
        async with asyncio.timeout(PATIENCE):
            while first.state is not State.RUNNING or not session.messages:
                await asyncio.sleep(0)
        assert shared.steer("more", "me") is first
        other = shared.steer("mine", "other")
        assert other.state is State.QUEUED
        shared.cancel(first.id)
        async with asyncio.timeout(PATIENCE):
            await first.done.wait()
            await other.done.wait()
            while "more" not in [message.content for message in session.messages]:
                await asyncio.sleep(0)
    texts = [message.content for message in session.messages if message.role is Role.USER]
    assert texts == ["hello", "mine", "more"]


async def test_nobody_approves_for_a_command_between_requests(tmp_path: Path) -> None:
    backend = ScriptedBackend(parse_script("text: one"))
    conversation = HeldConversation(Session(), tmp_path, backend)
    question = ApprovalRequest(ToolCall("1", "start_mcp_server", {}), (), "", (), (), "")
    async with SharedSession(conversation.shared, conversation.actions, backend) as shared:
        assert (await shared.approver.ask(question)).choice is Choice.DENY
        request = shared.submit("hello", "me")
        await request.done.wait()
        async with asyncio.timeout(PATIENCE):  # the request's client is not asked afterwards
            assert (await shared.approver.ask(question)).choice is Choice.DENY


async def test_a_request_that_waits_for_a_command_can_be_withdrawn(tmp_path: Path) -> None:
    backend = ScriptedBackend(parse_script("text: one"))
    conversation = HeldConversation(Session(), tmp_path, backend)
    may_end = asyncio.Event()

    async def command(text: str) -> str:
        await may_end.wait()
        return text

    actions = SessionActions(conversation.tool_runner, command)
    async with SharedSession(conversation.shared, actions, backend) as shared:
        running = asyncio.create_task(shared.command("/undo"))
        await asyncio.sleep(0)
        request = shared.submit("hello", "me")
        for _ in range(10):  # the worker looks at the queue
            await asyncio.sleep(0)
        assert shared.cancel(request.id) is request
        may_end.set()
        await running
        await shared.submit("and now?", "me").done.wait()
    assert request.finish_reason is FinishReason.CANCELLED
    assert [m.content for m in conversation.session.messages] == ["and now?", "one"]


async def test_a_prompt_waits_until_another_session_is_shared(tmp_path: Path) -> None:
    may_count = asyncio.Event()

    class SlowToCount(ScriptedBackend):
        async def count_session_tokens(self, session: Session) -> int:
            await may_count.wait()
            return await super().count_session_tokens(session)

    backend, other = SlowToCount(parse_script("text: one")), Session()
    other.add(Message.user("before"))
    conversation = HeldConversation(Session(), tmp_path, backend, saved={"other": other})
    async with SharedSession(conversation.shared, conversation.actions, backend) as shared:
        resuming = asyncio.create_task(shared.resume("other"))
        await asyncio.sleep(0)
        request = shared.submit("hello", "me")
        for _ in range(10):  # the worker looks at the queue
            await asyncio.sleep(0)
        may_count.set()
        await resuming
        await request.done.wait()
        kinds = [update.kind for update in shared.log.since(0) or ()]
    assert kinds.index(UpdateKind.SNAPSHOT) < kinds.index(UpdateKind.STARTED)
