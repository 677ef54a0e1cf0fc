"""OpenAI's newer fields: accepted where they change nothing, refused by name where they would."""

from typing import Any

import openai
import pytest

from tests.server.harness import Scripted, ask, scripted, stream
from tests.server.openai.test_to_session import session

FUNCTIONS = [{"type": "function", "function": {"name": name}} for name in ("one", "two", "three")]


def allowed(mode: str) -> dict[str, Any]:
    tools = [FUNCTIONS[2], FUNCTIONS[0]]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.fixture(scope="module")
def server() -> Any:
    with scripted("text: hi") as running:
        yield running


def test_what_changes_nothing_is_accepted(server: Scripted) -> None:
    accepted: dict[str, Any] = {
        "metadata": {"a": "b"},
        "prediction": {"type": "content", "content": "hi"},
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "flex",
        "store": True,
        "user": "me",
        "verbosity": "low",
    }
    with server.client() as client:
        answer = ask(client, **accepted)
        chunks = stream(client, **accepted, stream_options={"include_obfuscation": False})
    assert answer.choices[0].message.content == "hi"
    assert answer.service_tier == "default"
    assert {chunk.service_tier for chunk in chunks} == {"default"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audio", {"voice": "a", "format": "mp3"}),
        ("web_search_options", {}),
        ("modalities", ["text", "audio"]),
        ("functions", [{"name": "f"}]),
        ("guided_json", {"type": "object"}),
        ("guided_choice", ["a"]),
        ("min_tokens", 5),
        ("stop_token_ids", [1]),
        ("lora", [{"id": 0, "scale": 1.0}]),
        ("t_max_predict_ms", 100),
        ("n_indent", 4),
        ("chat_template", "{{ messages }}"),
        ("documents", [{"text": "a"}]),
        ("echo", True),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(
    server: Scripted, name: str, value: Any
) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body={name: value})
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")


@pytest.mark.parametrize(
    "fields",
    [
        {"min_tokens": 0, "stop_token_ids": [], "guided_json": None, "use_beam_search": False},
        {"t_max_predict_ms": -1, "adaptive_target": -1.0, "n_indent": 0, "lora": []},
    ],
)
def test_values_that_change_nothing_are_accepted(server: Scripted, fields: Any) -> None:
    with server.client() as client:
        assert ask(client, extra_body=fields).choices[0].message.content == "hi"


@pytest.mark.parametrize("kind", ["file", "input_audio", "video_url"])
def test_parts_of_other_kinds_are_refused_by_name(server: Scripted, kind: str) -> None:
    part = {"type": kind, kind: {"file_data": "x"}}
    with server.client() as client, pytest.raises(openai.BadRequestError, match=kind) as caught:
        ask(client, messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == "messages.0.content"


@pytest.mark.parametrize("flat", [True, False])
def test_only_the_allowed_tools_are_offered(*, flat: bool) -> None:
    choice = allowed("auto")
    if flat:
        choice = {**choice["allowed_tools"], "type": "allowed_tools"}
    found = session(tools=FUNCTIONS, tool_choice=choice)
    assert [tool.name for tool in found.tools] == ["one", "three"]
    assert found.tool_choice is None
    required = session(tools=FUNCTIONS, tool_choice=allowed("required"), parallel_tool_calls=False)
    assert [tool.name for tool in required.tools] == ["one", "three"]
    assert required.tool_choice is not None
    assert (required.tool_choice.name, required.tool_choice.single) == ("", True)


def test_a_choice_of_any_type_names_a_function() -> None:
    result = session(tools=FUNCTIONS, tool_choice={"type": "tool", "name": "one"})

    assert result.tool_choice is not None
    assert result.tool_choice.name == "one"


WRONG: list[dict[str, Any]] = [
    allowed("none"),
    allowed("else"),
    {"type": "allowed_tools"},
    {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{}]}},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "four"}]},
    {"type": "allowed_tools", "mode": "auto", "tools": "one"},
    {"type": "allowed_tools", "allowed_tools": 3},
    {"type": "function"},
]


@pytest.mark.parametrize("choice", WRONG)
def test_choices_that_make_no_sense_are_refused(server: Scripted, choice: Any) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=FUNCTIONS, tool_choice=choice)
    assert caught.value.param == "tool_choice"
