"""llama.cpp's own API."""

import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from shepherd.server.access.key import ApiKey
from shepherd.server.access.keys import Admission, KeyStore
from shepherd.server.errors import ApiError
from shepherd.server.record import RequestRecord, recording
from shepherd.server.settings import ServerSettings
from shepherd.server.wire.slots import Slots
from tests.patience import PATIENCE
from tests.server.engine import Engine, engine
from tests.server.harness import HI, RunningServer, scripted
from tests.server.held import HeldBackend

PROMPT = "The first word is"


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    with engine(parallel=2) as running:
        yield running


def send(server: RunningServer[Any], path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=PATIENCE)


def complete(server: RunningServer[Any], **body: Any) -> Any:
    response = send(server, "/completion", **({"prompt": PROMPT, "n_predict": 6} | body))
    assert response.status_code == 200, response.text
    return response.json()


def events(server: RunningServer[Any], **body: Any) -> list[dict[str, Any]]:
    given = {"prompt": PROMPT, "n_predict": 6, "stream": True} | body
    lines = send(server, "/completion", **given).text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data:")]


def test_a_completion_has_its_measures(server: Engine) -> None:
    body = complete(server, temperature=0.5, seed=7)
    assert body["content"]
    assert (body["stop"], body["stop_type"], body["stopping_word"]) == (True, "limit", "")
    assert body["tokens"] == []
    assert body["prompt"].endswith(PROMPT)
    assert body["tokens_evaluated"] == body["timings"]["prompt_n"] + body["timings"]["cache_n"]
    assert body["tokens_predicted"] == body["timings"]["predicted_n"] == 6
    assert not body["truncated"]
    settings = body["generation_settings"]
    assert (settings["temperature"], settings["seed"], settings["n_predict"]) == (0.5, 7, 6)
    assert send(server, "/completions", prompt=PROMPT, n_predict=6).json()["content"]


def test_a_stream_has_the_same_text_and_tokens(server: Engine) -> None:
    whole = complete(server, return_tokens=True)
    *pieces, last = events(server)
    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert [t for event in (*pieces, last) for t in event["tokens"]] == whole["tokens"]
    assert [event["stop"] for event in (*pieces, last)] == [False] * len(pieces) + [True]
    assert last["content"] == ""
    assert last["generation_settings"] == whole["generation_settings"] | {"stream": True}


def test_why_an_answer_ended(server: Engine) -> None:
    text = complete(server)["content"]
    word = complete(server, stop=[text[2:4]])
    assert (word["content"], word["stop_type"], word["stopping_word"]) == (
        text[:2],
        "word",
        text[2:4],
    )
    ended = complete(server, grammar='root ::= "a\\n"')
    assert (ended["content"], ended["stop_type"], ended["has_new_line"]) == ("a\n", "eos", True)
    read = complete(server, n_predict=0)
    assert (read["content"], read["tokens_predicted"]) == ("", 0)
    full = complete(server, prompt=[9] * 2030, n_predict=-1, ignore_eos=True)
    assert (full["stop_type"], full["truncated"]) == ("limit", True)
    bans = full["generation_settings"]["logit_bias"]
    assert bans
    assert all(ban["bias"] is None for ban in bans)


def test_prompts_in_all_forms(server: Engine) -> None:
    tokens = send(server, "/tokenize", content=PROMPT, add_special=True).json()["tokens"]
    expected = complete(server)["content"]
    assert complete(server, prompt={"prompt_string": PROMPT})["content"] == expected
    many = complete(server, prompt=[tokens, PROMPT, {"prompt_string": PROMPT}])
    assert [body["content"] for body in many] == [expected] * 3
    assert [body["index"] for body in many] == [0, 1, 2]
    assert [body["content"] for body in complete(server, prompt=[PROMPT])] == [expected]
    mixed = complete(server, prompt=[tokens[0], "one", tokens[1], "two"])
    assert "one" in mixed["prompt"]
    assert len(complete(server, n_cmpl=2)) == 2
    parallel = events(server, prompt=[PROMPT, "Other words"])
    assert {event["index"] for event in parallel if event["stop"]} == {0, 1}


def test_probabilities_have_the_numbers_of_tokens(server: Engine) -> None:
    body = complete(server, n_probs=4, return_tokens=True)
    told = body["completion_probabilities"]
    assert [token["id"] for token in told] == body["tokens"]
    for token in told:
        assert len(token["top_logprobs"]) == 4
        assert token["top_logprobs"][0]["logprob"] == pytest.approx(token["logprob"])
        assert bytes(token["bytes"]).decode("utf-8", "ignore") == token["token"]
    pieces = events(server, n_probs=4)
    streamed = [t["id"] for piece in pieces for t in piece.get("completion_probabilities", [])]
    assert streamed == body["tokens"]
    assert all(len(p.get("completion_probabilities", [0])) == 1 for p in pieces)


def test_only_the_requested_fields_are_sent(server: Engine) -> None:
    wanted = ["content", "generation_settings/n_predict", "prompt", "missing/field"]
    body = complete(server, response_fields=wanted)
    assert body.keys() == {"content", "generation_settings/n_predict", "prompt"}
    assert body["generation_settings/n_predict"] == 6


def test_progress_and_timings_in_a_stream(server: Engine) -> None:
    prompt = "Some other words, one after another. " * 20
    told = events(server, prompt=prompt, return_progress=True, timings_per_token=True)
    reports = [event["prompt_progress"] for event in told if "prompt_progress" in event]
    assert reports[0]["processed"] == reports[0]["cache"]
    assert reports[-1]["processed"] == reports[-1]["total"]
    assert all("timings" in event for event in told[len(reports) :])


def test_text_to_tokens_and_back(server: Engine) -> None:
    text = "Größe 媽 🤗 <|im_start|>"
    tokens = send(server, "/tokenize", content=text).json()["tokens"]
    assert send(server, "/detokenize", tokens=tokens).json() == {"content": text}
    plain = send(server, "/tokenize", content=text, parse_special=False).json()["tokens"]
    assert len(plain) > len(tokens)
    pieces = send(server, "/tokenize", content=text, with_pieces=True).json()["tokens"]
    assert [piece["id"] for piece in pieces] == tokens
    raw = b"".join(
        bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces
    )
    assert raw.decode() == text
    mixed = send(server, "/tokenize", content=["a", tokens[0], "b"]).json()["tokens"]
    assert tokens[0] in mixed
    assert send(server, "/tokenize").json() == {"tokens": []}
    assert send(server, "/detokenize").json() == {"content": ""}


def test_a_chat_request_as_its_prompt(server: Engine) -> None:
    prompt = send(server, "/apply-template", messages=HI).json()["prompt"]
    without = send(server, "/apply-template", messages=HI, add_generation_prompt=False).json()
    assert prompt.startswith(without["prompt"])
    assert prompt != without["prompt"]
    chat = send(server, "/v1/chat/completions", messages=HI, max_tokens=6).json()
    assert complete(server, prompt=prompt)["content"] == chat["choices"][0]["message"]["content"]
    for path in ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"):
        counted = send(server, path, messages=HI).json()
        assert counted == {"input_tokens": chat["usage"]["prompt_tokens"]}


def test_the_model_and_its_slots(server: Engine) -> None:
    props = httpx.get(f"{server.url}/props", timeout=PATIENCE).json()
    assert props["total_slots"] == 2
    assert props["model_path"].endswith(".gguf")
    assert "/" not in props["model_path"]
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert props["default_generation_settings"]["params"]["temperature"] == 0.0
    assert "im_start" in props["chat_template"]
    slots = httpx.get(f"{server.url}/slots", timeout=PATIENCE).json()
    assert [slot["is_processing"] for slot in slots] == [False, False]
    assert {slot["n_ctx"] for slot in slots} == {2048}


WRONG: list[tuple[str, dict[str, Any], str | None]] = [
    ("/completion", {}, "prompt"),
    ("/completion", {"prompt": None}, "prompt"),
    ("/completion", {"prompt": "a", "n_cmpl": 99}, "n_cmpl"),
    ("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, None),
    ("/completion", {"prompt": "a", "grammar": "root ::= ("}, None),
    ("/completion", {"prompt": "a", "lora": [{"id": 0}]}, "lora"),
    ("/completion", {"prompt": [-1]}, "prompt"),
    ("/tokenize", {"content": {"a": 1}}, "content"),
    ("/tokenize", {"content": [10**9]}, "content"),
    ("/tokenize", {"content": ["a" * 999_999, 1, "bb"]}, "content"),
    ("/tokenize", {"content": "é" * 500_001}, "content"),
    ("/detokenize", {"tokens": [10**9]}, "tokens"),
    ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/apply-template", {"messages": "a"}, "messages"),
    ("/infill", {"input_prefix": "a"}, "input_suffix"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b"}, "suffix"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{}]}, None),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_what_cannot_be_served_is_refused_in_its_shape(
    server: Engine, path: str, body: Any, param: str | None
) -> None:
    response = send(server, path, **body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error.keys() == {"code", "message", "type", "param"}
    assert error["code"] == 400
    assert error["type"] in ("invalid_request_error", "not_supported_error")
    assert param in (None, error["param"])


def test_too_long_a_prompt_has_its_numbers(server: Engine) -> None:
    for fields in ({}, {"stream": True}, {"stream": True, "return_progress": True}):
        error = send(server, "/completion", prompt="word " * 9000, **fields).json()["error"]
        assert error["type"] == "exceed_context_size_error"
        assert error["n_prompt_tokens"] > error["n_ctx"] == 2048
        assert "exceeds the available context size" in error["message"]


def test_a_provider_has_neither_prompts_nor_tokens() -> None:
    with RunningServer(HeldBackend()) as held:
        for path, body in (
            ("/completion", {"prompt": "a"}),
            ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
            ("/tokenize", {"content": "a"}),
            ("/detokenize", {"tokens": [1]}),
            ("/apply-template", {"messages": HI}),
        ):
            response = send(held, path, **body)
            assert response.status_code == 400
            assert response.json()["error"]["type"] == "not_supported_error"
        for path in ("/props", "/slots"):
            assert httpx.get(held.url + path, timeout=PATIENCE).status_code == 400


def test_probabilities_after_the_samplers(server: Engine) -> None:
    asked: dict[str, Any] = {"n_probs": 10, "temperature": 1.0, "seed": 3}
    plain = complete(server, **asked, top_k=3, top_p=1.0)
    sampled = complete(server, **asked, top_k=3, top_p=1.0, post_sampling_probs=True)
    assert sampled["content"] == plain["content"]
    assert sampled["generation_settings"]["n_probs"] == 10
    for before, after in zip(
        plain["completion_probabilities"], sampled["completion_probabilities"], strict=True
    ):
        chances = {chance["id"]: chance["prob"] for chance in after["top_probs"]}
        likeliest = before["top_logprobs"][:3]
        assert [*chances] == [chance["id"] for chance in likeliest]
        shares = [math.exp(chance["logprob"]) for chance in likeliest]
        assert [*chances.values()] == pytest.approx([share / sum(shares) for share in shares])
        assert after["prob"] == chances[after["id"]]
        assert "logprob" not in after


@pytest.mark.parametrize("grammar", [None, 'root ::= "a" | "b"'])
def test_only_the_best_token_is_possible_without_a_temperature(
    server: Engine, grammar: str | None
) -> None:
    fields = {} if grammar is None else {"grammar": grammar}
    body = complete(server, n_probs=5, temperature=0, post_sampling_probs=True, **fields)
    for token in body["completion_probabilities"]:
        assert token["prob"] == 1
        assert [chance["id"] for chance in token["top_probs"]] == [token["id"]]


def move(server: RunningServer[Any], slot: int, action: str, **body: Any) -> httpx.Response:
    url = f"{server.url}/slots/{slot}?action={action}"
    return httpx.post(url, json=body or None, timeout=PATIENCE)


def test_a_conversation_is_saved_and_restored_by_name(tmp_path: Path) -> None:
    names = ("first.bin", "../../slot", "x" * 3000)
    body = {"prompt": PROMPT * 20, "n_predict": 8, "id_slot": 3}
    with engine(ServerSettings(port=0, slots_folder=tmp_path / "slots")) as server:
        whole = complete(server, **body)
        assert whole["id_slot"] == 3
        counts = whole["tokens_evaluated"] + whole["tokens_predicted"]
        saved = [move(server, 3, "save", filename=name).json() for name in names]
        assert [(answer["id_slot"], answer["filename"]) for answer in saved] == [
            (3, name) for name in names
        ]
        assert {answer["n_saved"] for answer in saved} == {counts}
        assert move(server, 3, "erase").json() == {"id_slot": 3, "n_erased": counts}
        assert move(server, 3, "save", filename="again").status_code == 400
    assert [path.parent for path in tmp_path.rglob("*") if path.is_file()] == [
        tmp_path / "slots"
    ] * len(names)
    with engine(ServerSettings(port=0, slots_folder=tmp_path / "slots")) as server:
        restored = move(server, 1, "restore", filename=names[1]).json()
        assert restored["n_restored"] == counts
        assert restored["n_read"] == saved[1]["n_written"]
        assert complete(server, **body)["timings"]["prompt_n"] == 1
        assert move(server, 1, "save", filename="copy").json()["n_saved"] == counts


def test_what_can_not_be_done_with_a_slot_is_told(tmp_path: Path) -> None:
    with engine(ServerSettings(port=0, slots_folder=tmp_path)) as server:
        for slot, action, body in (
            (0, "save", {"filename": "a"}),
            (0, "restore", {"filename": "a"}),
            (0, "else", {}),
            (0, "save", {}),
        ):
            assert move(server, slot, action, **body).status_code == 400
    with engine() as server:
        complete(server)
        assert "nothing is saved" in move(server, 0, "save", filename="a").text


def test_keys_have_slots_and_names_of_their_own(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "slots")

    def as_key(name: str) -> AbstractContextManager[None]:
        key = ApiKey(name, "", "", datetime.now(UTC))
        record = RequestRecord("", admission=Admission(key, KeyStore(tmp_path / "keys"), ""))
        return recording(record, {})

    with as_key("mine"):
        slots.note(0, (1, 2, 3))
        assert slots.save(0, "a")[0] == 3
    with as_key("other"):
        assert slots.erase(0) == 0
        with pytest.raises(ApiError):
            slots.save(0, "b")
        with pytest.raises(ApiError):
            slots.read("a")
    with as_key("mine"):
        assert list(slots.read("a")) == [1, 2, 3]


def test_errors_of_the_edge_have_its_shape() -> None:
    with scripted(
        "text: hi", ServerSettings.model_construct(port=0, max_body_bytes=1000)
    ) as running:
        large = send(running, "/completion", prompt="a" * 2000)
        method = httpx.get(f"{running.url}/completion", timeout=PATIENCE)
        missing = httpx.get(f"{running.url}/slots/1/2", timeout=PATIENCE)
    for response, status in ((large, 413), (method, 405), (missing, 404)):
        assert response.status_code == status
        assert response.json()["error"]["code"] == status
