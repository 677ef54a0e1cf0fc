"""The official SDK sends the same requests, and reads the same out of the same streams."""

import json
from collections.abc import Sequence

import httpx2
from anthropic import Anthropic
from anthropic.types import ParsedMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.answer import Answer
from shepherd.backends.api.anthropic.adapter import AnthropicAdapter
from shepherd.backends.api.anthropic.dialect import assistant_blocks
from shepherd.events import FinishReason, Stats
from shepherd.messages import JsonObject, Message, ToolSpec
from shepherd.session import Session
from tests.backends.api.anthropic.streams import (
    MODEL,
    answer,
    call,
    redacted,
    text,
    thought,
)
from tests.examples import examples

TRAITS = ModelTraits(MODEL, thinking=True)
READ = ToolSpec("read", "Reads a file.")

QUESTION = Session("Be brief.", [Message.user("Hi")], [READ], thinking=True)


def listen(*_: object) -> bool:
    return True


def our_answer(events: Sequence[JsonObject]) -> tuple[Message, FinishReason, Answer]:
    adapter = AnthropicAdapter()
    decoder, collected = adapter.decoder(), Answer(adapter, QUESTION, listen)
    for event in events:
        collected.take(decoder.feed(event["type"], event))
    assert decoder.complete
    generation = collected.complete(Stats())
    return generation.message, generation.finish_reason, collected


def sdk_answer(events: Sequence[JsonObject], sent: JsonObject) -> ParsedMessage[None]:
    """What the SDK reads from the stream when it is asked to send the body `sent`."""
    lines = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    bodies: list[JsonObject] = []

    def reply(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=lines)

    with httpx2.Client(transport=httpx2.MockTransport(reply)) as http:
        client = Anthropic(api_key="sk-1", max_retries=0, http_client=http)
        arguments = {key: value for key, value in sent.items() if key != "stream"}
        with client.messages.stream(**arguments) as stream:
            message = stream.get_final_message()
    assert bodies == [sent]
    return message


pieces = st.lists(st.sampled_from(["a", " b", "\n", "Köln ", "<tool_call>", "😀"]), max_size=3)
objects = st.dictionaries(st.sampled_from("ab"), st.integers() | st.text(max_size=3), max_size=2)


@st.composite
def streams(draw: st.DrawFn) -> list[JsonObject]:
    blocks: list[list[JsonObject]] = []
    for index in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["text", "thought", "redacted", "call"]))
        if kind == "call":
            arguments = json.dumps(draw(objects))
            cut = draw(st.integers(0, len(arguments)))
            blocks.append(call(index, f"toolu_{index}", "read", arguments[:cut], arguments[cut:]))
        elif kind == "redacted":
            blocks.append(redacted(index, f"data-{index}"))
        elif kind == "thought":
            blocks.append(thought(index, f"sig-{index}", *draw(pieces)))
        else:
            blocks.append(text(index, "Well", *draw(pieces)))
    return answer(*blocks)


@settings(max_examples=examples(40))
@given(streams())
def test_the_same_stream_gives_the_same_message(events: list[JsonObject]) -> None:
    sent = AnthropicAdapter().chat(QUESTION, TRAITS, 500).body
    assert sent is not None
    theirs = sdk_answer(events, sent)
    ours, reason, collected = our_answer(events)
    assert ours.content == "".join(b.text for b in theirs.content if b.type == "text")
    assert ours.reasoning == "".join(b.thinking for b in theirs.content if b.type == "thinking")
    assert [(c.id, c.name, c.arguments) for c in ours.tool_calls] == [
        (b.id, b.name, b.input) for b in theirs.content if b.type == "tool_use"
    ]
    assert (reason is FinishReason.TOOL_CALLS) == (theirs.stop_reason == "tool_use")
    assert collected.usage.prompt_tokens == theirs.usage.input_tokens
    assert collected.usage.completion_tokens == theirs.usage.output_tokens
    back = [block.to_dict(exclude_none=True) for block in theirs.content]
    if any(block["type"] in ("thinking", "redacted_thinking") for block in back):
        assert assistant_blocks(ours, MODEL) == back
