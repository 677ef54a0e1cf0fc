"""Signatures of what clients keep for the server."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.errors import ConfigError
from shepherd.server.seal import KEY_BYTES, Seal, SealError

texts = st.text(st.characters(exclude_categories=()))
OURS, OTHER = Seal(), Seal()


@given(texts, texts)
def test_only_its_own_text_has_a_signature(text: str, other: str) -> None:
    signature = OURS.sign("a", text)
    assert OURS.verify("a", text, signature)
    assert not OURS.verify("a", text + other + "!", signature)
    assert not OURS.verify("b", text, signature)
    assert not OTHER.verify("a", text, signature)
    assert not OURS.verify("a", text, other)


@given(texts, st.data())
def test_a_text_comes_back_as_it_was_or_not_at_all(text: str, data: st.DataObject) -> None:
    word = OURS.wrap("a", text)
    assert OURS.unwrap("a", word) == text.encode("utf-8", "replace").decode()
    at = data.draw(st.integers(0, len(word) - 5))
    changed = word[:at] + ("A" if word[at] != "A" else "B") + word[at + 1 :]
    for seal, purpose, other in ((OURS, "a", changed), (OURS, "b", word), (OTHER, "a", word)):
        with pytest.raises(SealError):
            seal.unwrap(purpose, other)


@given(texts)
def test_what_is_not_signed_is_refused(text: str) -> None:
    with pytest.raises(SealError):
        OURS.unwrap("a", text)


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "signing.key"
    seal = Seal(path)
    assert not path.exists()
    signature = seal.sign("a", "text")
    assert Seal(path).verify("a", "text", signature)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "zz", "ab" * (KEY_BYTES - 1), "ü"])
def test_a_damaged_key_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "signing.key"
    path.write_text(content)
    with pytest.raises(ConfigError, match="is damaged"):
        Seal(path).sign("a", "text")
