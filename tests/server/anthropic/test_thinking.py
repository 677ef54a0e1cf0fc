"""Reasoning that comes back must be the reasoning that was sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.messages import Message, ToolCall
from shepherd.server.anthropic.answers import Thoughts
from shepherd.server.seal import Seal
from shepherd.server.settings import ServerSettings
from tests.server.anthropic.support import HI, THINK, Server, ask, client_of, post, stream
from tests.server.harness import scripted

texts = st.text(st.characters(exclude_categories=()))
THOUGHTS = Thoughts(Seal())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with scripted("chunk: 3\nthink: Let me see.\ntext: Done.") as running:
        yield running


def replay(server: Server, *blocks: Any) -> Any:
    messages = [*HI, {"role": "assistant", "content": [*blocks]}, *HI]
    return post(server, {"messages": messages, "thinking": THINK})


def test_signed_reasoning_is_taken_back(server: Server) -> None:
    with client_of(server) as client:
        for answer in (ask(client, thinking=THINK), stream(client, thinking=THINK)):
            blocks = [block.to_dict() for block in answer.content]
            assert replay(server, *blocks).status_code == 200


@pytest.mark.parametrize(
    "changes", [{"thinking": "Let me lie."}, {"signature": "AAAA"}, {"signature": ""}]
)
def test_forged_reasoning_is_refused(server: Server, changes: dict[str, str]) -> None:
    with client_of(server) as client:
        block = ask(client, thinking=THINK).content[0].to_dict()
    response = replay(server, block | changes, {"type": "text", "text": "Done."})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("messages.1.content.0.signature")


def test_another_server_s_reasoning_is_refused(server: Server) -> None:
    signature = Thoughts(Seal()).signature("Let me see.")
    block = {"type": "thinking", "thinking": "Let me see.", "signature": signature}
    assert replay(server, block).status_code == 400
    redacted = replay(server, {"type": "redacted_thinking", "data": "AAAA"})
    assert redacted.json()["error"]["message"].startswith("messages.1.content.0.data")


@pytest.mark.parametrize("how", [ask, stream])
def test_omitted_reasoning_comes_back_from_its_signature(server: Server, how: Any) -> None:
    hidden = {"type": "adaptive", "display": "omitted"}
    with client_of(server) as client:
        answer: anthropic.types.Message = how(client, thinking=hidden)
    block = answer.content[0].to_dict()
    assert block["thinking"] == ""
    assert replay(server, block).status_code == 200
    assert replay(server, block | {"thinking": "Let me lie."}).status_code == 400


@given(texts, texts)
def test_signatures(text: str, other: str) -> None:
    sent = text.encode("utf-8", "replace").decode()
    assert THOUGHTS.text(sent, THOUGHTS.signature(text)) == sent
    assert THOUGHTS.text("", THOUGHTS.signature(text, hidden=True)) == sent
    for signature in (THOUGHTS.signature(text), THOUGHTS.signature(text, hidden=True), other):
        with pytest.raises(ValueError, match=r"."):
            THOUGHTS.text(f"{text}{other}!", signature)


def test_what_a_provider_wants_back_travels_with_the_message() -> None:
    call = ToolCall("c1", "f", {}, {"gemini": {"thoughtSignature": "s"}})
    message = replace(
        Message.assistant("ok", "", (call, ToolCall("c2", "g", {}))),
        extra={"anthropic": {"model": "m", "blocks": [{"type": "text", "length": 2}]}},
    )
    plain = replace(
        message, extra={}, tool_calls=tuple(replace(c, extra={}) for c in message.tool_calls)
    )
    assert THOUGHTS.with_extras(plain, THOUGHTS.redacted(message)) == message
    assert THOUGHTS.redacted(plain) == ""


def test_without_a_key_for_signatures_the_place_of_its_file_stays_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file in the place of the folder")
    settings = ServerSettings(port=0, signing_key=tmp_path / "state" / "signing.key")
    with scripted("think: Let me see.\ntext: fine", settings) as server:
        response = post(server, {"messages": HI, "thinking": THINK})
    assert response.status_code == 503
    error = response.json()["error"]
    assert error["details"]["error_code"] == "store_unavailable"
    assert str(tmp_path) not in response.text
    assert str(tmp_path) in caplog.text
