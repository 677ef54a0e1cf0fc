"""What a shared session does to the conversation that it shares."""

import warnings
from pathlib import Path

from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.conversation.shared.session import SharedSession
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.transcript import SessionStore
from tests.server.conversation.harness import HeldConversation


async def test_it_listens_to_the_session_only_while_it_serves(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    transcript = store.create(tmp_path, "pup", "", warnings.warn)
    session = Session(id=transcript.header.id, journal=transcript)
    backend = ScriptedBackend(parse_script("text: hi"))
    shared = SharedSession(HeldConversation(session, tmp_path, backend), backend)
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
