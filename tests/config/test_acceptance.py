"""Acceptance of a project's commands by their hash."""

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.config.acceptance import AcceptanceStore, Proposal
from shepherd.errors import ConfigError

CONTENT = {"command": ["npx", "server"], "env": {"A": "1"}}


def proposal(directory: Path) -> Proposal:
    return Proposal("mcp", directory, CONTENT)


def test_only_the_same_command_in_the_same_directory_is_accepted(tmp_path: Path) -> None:
    store, accepted = AcceptanceStore(tmp_path / "c" / "accepted.json"), proposal(tmp_path)
    assert not store.is_accepted(accepted)
    store.accept(accepted, "npx server")
    again = AcceptanceStore(store.path)
    assert again.is_accepted(accepted)
    assert again.is_accepted(replace(accepted, content=dict(reversed(CONTENT.items()))))
    others = [
        replace(accepted, kind="hook"),
        replace(accepted, directory=tmp_path / "sub"),
        replace(accepted, content={**CONTENT, "command": ["npx", "server", "-x"]}),
        replace(accepted, content={**CONTENT, "env": {"A": "1", "LD_PRELOAD": "x"}}),
        replace(accepted, content={**CONTENT, "timeout": 1}),
    ]
    assert not any(again.is_accepted(other) for other in others)
    store.withdraw(accepted)
    assert not again.is_accepted(accepted)


def test_a_link_to_the_directory_is_the_directory(tmp_path: Path) -> None:
    store = AcceptanceStore(tmp_path / "accepted.json")
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    store.accept(proposal(tmp_path / "link"), "x")
    assert store.is_accepted(proposal(tmp_path / "project"))


def test_the_file_is_private(tmp_path: Path) -> None:
    store = AcceptanceStore(tmp_path / "accepted.json")
    store.accept(proposal(tmp_path), "x")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["{", "[]", '{"accepted": ["x"]}', '{"other": 1}', "\xff"])
def test_a_broken_file_accepts_nothing_and_is_kept(tmp_path: Path, text: str) -> None:
    store = AcceptanceStore(tmp_path / "accepted.json")
    store.path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"accepted\.json"):
        store.is_accepted(proposal(tmp_path))
    with pytest.raises(ConfigError):
        store.accept(proposal(tmp_path), "x")
    assert store.path.read_bytes() == text.encode("latin-1")


def test_a_file_that_others_can_write_accepts_nothing(tmp_path: Path) -> None:
    store = AcceptanceStore(tmp_path / "accepted.json")
    store.accept(proposal(tmp_path), "x")
    store.path.chmod(0o666)
    with pytest.raises(ConfigError, match="others can write"):
        store.is_accepted(proposal(tmp_path))
