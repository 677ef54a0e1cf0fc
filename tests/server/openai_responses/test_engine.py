"""The Responses API over the in-process engine and the built-in model."""

import re
import secrets
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseCustomToolCall

from tests.server.engine import Engine, engine
from tests.server.openai_responses.harness import created, post, rebuilt, streamed

LIST: dict[str, Any] = {
    "type": "function",
    "name": "list_directory",
    "description": "List a directory.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
AGENTS: dict[str, Any] = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}],
}
QUESTION = "List the files in src"


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


def as_codex(items: list[Any], **fields: Any) -> dict[str, Any]:
    """A request with the fields that Codex sends; what changes with each run is random."""
    return {
        "model": "pup",
        "input": items,
        "tools": [LIST, AGENTS, {"type": "web_search"}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": secrets.token_hex(8),
        "client_metadata": {"run": secrets.token_hex(8)},
        **fields,
    }


def said(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {
        "type": "message",
        "id": f"msg_{secrets.token_hex(8)}",
        "role": role,
        "content": content,
    }


def opening() -> list[dict[str, Any]]:
    texts = (("developer", "Be brief."), ("developer", "Use tools."), ("user", "/home"))
    return [*(said(role, text) for role, text in texts), said("user", QUESTION)]


def cached(response: dict[str, Any]) -> int:
    return response["usage"]["input_tokens_details"]["cached_tokens"]


def test_progress_and_times_are_told_to_who_asks(server: Engine) -> None:
    text = f"{secrets.token_hex(4)} " + "A word. " * 150
    told = {"return_progress": True, "timings_per_token": True}
    events = streamed(server, input=text, max_output_tokens=16, **told)
    reports = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    done = [report["processed"] for report in reports]
    assert done == sorted(set(done))
    assert done[-1] == reports[-1]["total"]
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.count("response.created") == 1
    assert kinds.count("response.in_progress") == len(reports) + 1
    texts = [event for event in events if event["type"] == "response.output_text.delta"]
    assert texts
    assert all(event["timings"]["predicted_n"] > 0 for event in (*texts, events[-1]))
    plain = streamed(server, input="hi", max_output_tokens=16)
    assert not any({"timings", "prompt_progress"} & event.keys() for event in plain)


def test_requests_of_one_client_extend_each_other(server: Engine) -> None:
    items = opening()
    first = streamed(server, **as_codex(items))[-1]["response"]
    call = first["output"][-1]
    assert (call["type"], call["name"]) == ("function_call", "list_directory")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "main.c"}
    items = [*items, *first["output"], output]
    second = streamed(server, **as_codex(items))[-1]["response"]
    # all but the last token that was sampled, which was never decoded
    assert cached(second) >= first["usage"]["total_tokens"] - 1
    again = streamed(server, **as_codex(opening()))[-1]["response"]
    assert cached(again) >= again["usage"]["input_tokens"] - 1


def test_a_stored_conversation_extends_its_prompt(server: Engine) -> None:
    first = created(server, input="Hello", max_output_tokens=20)
    second = created(
        server, input="And now?", previous_response_id=first["id"], max_output_tokens=20
    )
    assert cached(second) >= first["usage"]["total_tokens"] - 1


def test_the_count_is_that_of_the_answer(server: Engine) -> None:
    body = as_codex(opening(), max_output_tokens=1)
    counted = post(server, body, "/input_tokens").json()
    assert counted["input_tokens"] == created(server, **body)["usage"]["input_tokens"]


@pytest.mark.parametrize("seed", range(3))
def test_a_custom_tool_is_held_to_its_regular_expression(server: Engine, seed: int) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": r'[a-c]{2}"\n[0-9]{2}'}
    tool = {"type": "custom", "name": "note", "format": grammar}
    options = {"temperature": 3.0, "seed": seed, "tools": [tool]}
    choice = {"type": "custom", "name": "note"}
    events = streamed(server, input="Write", tool_choice=choice, **options)
    item = rebuilt(events)[-1]
    assert item["item"]["type"] == "custom_tool_call"
    assert re.fullmatch(grammar["definition"], item["item"]["input"])
    assert item["text"] == item["item"]["input"]


SUM = r"""
start: sum LF
sum: value (" + " value) ~ 0..2
value: /[0-9]{1,2}/ | "\"" /[a-c]/ "\"" | "(" sum ")"
%import common.LF
"""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("recursive", [True, False])
def test_a_custom_tool_is_held_to_its_lark_grammar(
    server: Engine, seed: int, *, recursive: bool
) -> None:
    definition = SUM if recursive else SUM.replace(' | "(" sum ")"', "")
    form: Any = {"type": "grammar", "syntax": "lark", "definition": definition}
    with openai.OpenAI(base_url=server.url + "/v1", api_key="x") as client:
        response = client.responses.create(
            model="default",
            input="Write",
            temperature=1.0,
            max_output_tokens=900,
            tools=[{"type": "custom", "name": "note", "format": form}],
            tool_choice={"type": "custom", "name": "note"},
            extra_body={"seed": seed},
        )
    call = response.output[-1]
    assert isinstance(call, ResponseCustomToolCall)
    if response.status == "completed":
        assert re.fullmatch(
            r'[()]*([0-9]{1,2}|"[a-c]")([()]| \+ |[0-9]{1,2}|"[a-c]")*\n', call.input
        )
        assert call.input.count("(") == call.input.count(")")


@pytest.mark.parametrize(
    ("syntax", "definition", "message"),
    [
        ("regex", "([", "unclosed"),
        ("lark", 'start: "a"\n  word', "'word' in line 2"),
        ("lark", 'start: a & "b"\na: "a" start?', "& is only supported for tokens"),
    ],
)
def test_a_grammar_that_is_none_is_refused(
    server: Engine, syntax: str, definition: str, message: str
) -> None:
    grammar = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool = {"type": "custom", "name": "note", "format": grammar}
    for choice in ("auto", {"type": "custom", "name": "note"}):
        answer = post(server, {"tools": [tool], "tool_choice": choice})
        assert answer.status_code == 400, answer.text
        assert message in answer.json()["error"]["message"]


def test_the_answer_has_the_form_of_the_schema(server: Engine) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "name": "s", "schema": schema}
    response = created(server, input="Say ok in JSON", text={"format": form})
    assert response["output"][-1]["content"][0]["text"] in ('{"ok": true}', '{"ok": false}')


def test_a_bad_schema_is_refused_with_its_place(server: Engine) -> None:
    form = {"type": "json_schema", "name": "s", "schema": {"type": "thing"}}
    refused = post(server, {"text": {"format": form}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text.format")


def test_log_probabilities_of_the_text(server: Engine) -> None:
    options: dict[str, Any] = {
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "max_output_tokens": 8,
    }
    for response in (created(server, **options), streamed(server, **options)[-1]["response"]):
        part = response["output"][-1]["content"][0]
        assert "".join(token["token"] for token in part["logprobs"]) == part["text"]
        assert all(len(token["top_logprobs"]) == 2 for token in part["logprobs"])


def test_old_turns_leave_a_conversation_that_is_too_long(server: Engine) -> None:
    turn = [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "ok"}]
    body = {"input": turn * 8 + [{"role": "user", "content": "Hello"}], "max_output_tokens": 4}
    refused = post(server, body)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    response = created(server, **body, truncation="auto")
    assert len(response["truncated_items"]) % 2 == 0
    assert response["output"][-1]["content"][0]["text"]
