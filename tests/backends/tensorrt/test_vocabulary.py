"""Tokenizers of the hub, and what a model's files say."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.backends.inprocess.special import ATTR_CONTROL, ATTR_RSTRIP, ATTR_USER_DEFINED
from shepherd.backends.tensorrt.model_files import (
    HubVocabulary,
    ModelFacts,
    byte_alphabet,
    read_facts,
)
from shepherd.errors import ModelLoadError
from tests.backends.tensorrt.package import Tokenizer
from tests.examples import examples

BLANKS = {
    "type": "Sequence",
    "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}],
}


def vocabulary(data: object, ends: tuple[int, ...] = ()) -> HubVocabulary:
    return HubVocabulary(Tokenizer(), json.dumps(data), ends)


def test_the_alphabet_has_every_byte_once() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))


@settings(max_examples=examples(25))
@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=20, unique=True))
def test_byte_level_tokens_are_their_bytes(pieces: list[bytes]) -> None:
    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    vocab = {"".join(letters[b] for b in piece): n for n, piece in enumerate(pieces)}
    decoder = {"type": "ByteLevel"}
    made = vocabulary({"model": {"vocab": vocab}, "decoder": decoder})
    assert [made.piece(n) for n in range(made.size)] == pieces


def test_tokens_with_blanks_and_bytes() -> None:
    rows = [["<unk>", 0.0], ["\u2581the", -1.0], ["<0xC3>", -2.0], ["\u00e9", -3.0]]
    made = vocabulary({"model": {"type": "Unigram", "vocab": rows}, "decoder": BLANKS})
    assert [made.piece(n) for n in range(5)] == [b"<unk>", b" the", b"\xc3", "\u00e9".encode(), b""]
    assert made.text(-1) == ""


def test_added_tokens() -> None:
    added = [
        {"id": 7, "content": "<|end|>", "special": True, "rstrip": True},
        {"id": 8, "content": "<tool>", "special": False},
    ]
    made = vocabulary({"model": {"vocab": {"a": 0}}, "added_tokens": added}, (7, 3, 7))
    assert made.specials == {7: ATTR_CONTROL | ATTR_RSTRIP, 8: ATTR_USER_DEFINED}
    assert (made.text(7), made.piece(8)) == ("<|end|>", b"<tool>")
    assert (made.ends, made.eos, made.bos) == ((7, 3), 7, -1)
    with pytest.raises(ModelLoadError, match="no vocabulary"):
        vocabulary({"model": {"vocab": None}})


def test_special_tokens_are_text_unless_asked() -> None:
    tokenizer = Tokenizer()
    made = HubVocabulary(tokenizer, json.dumps({"model": {"vocab": {}}}), ())
    made.tokenize("a")
    made.tokenize("b", parse_special=True)
    options = [kwargs for _, kwargs in tokenizer.encoded]
    assert options == [
        {"add_special_tokens": False, "split_special_tokens": True},
        {"add_special_tokens": False, "split_special_tokens": False},
    ]


@pytest.mark.parametrize(
    ("config", "generation", "facts"),
    [
        ({"max_position_embeddings": 4096, "eos_token_id": 2}, None, ModelFacts(4096, (2,))),
        ({"text_config": {"max_position_embeddings": 99, "eos_token_id": [5]}}, {},
         ModelFacts(99, (5,))),
        ({"n_positions": 1024, "eos_token_id": 2}, {"eos_token_id": [2, 7]},
         ModelFacts(1024, (2, 7))),
        ({"build_config": {"max_seq_len": 800}}, None, ModelFacts(800, is_engine=True)),
        ({"max_position_embeddings": "many", "eos_token_id": None}, [], ModelFacts()),
    ],
)  # fmt: skip
def test_what_files_say(
    tmp_path: Path, config: object, generation: object, facts: ModelFacts
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_facts(str(tmp_path)) == facts

    def fetch(repo: str, name: str) -> Path | None:
        assert repo == "owner/name"
        return tmp_path / name if (tmp_path / name).exists() else None

    assert read_facts("owner/name", fetch) == facts


def test_files_that_are_broken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelLoadError, match=r"config\.json can't be read"):
        read_facts(str(tmp_path))
    with pytest.raises(ModelLoadError, match="OWNER/NAME"):
        read_facts("owner/name", lambda repo, name: None)
