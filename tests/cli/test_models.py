"""Models as users type them."""

import os
from pathlib import Path

import pytest

from shepherd.conversation.model_choice import model_from_user
from tests.cli.program import Program


def test_a_file_here_is_meant_only_when_it_looks_like_one(tmp_path: Path) -> None:
    for name in ("pup", "model.gguf", "sub/model"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    assert model_from_user("pup", tmp_path) == "pup"
    assert model_from_user("./pup", tmp_path) == str(tmp_path / "pup")
    for name in ("model.gguf", "sub/model"):
        assert model_from_user(name, tmp_path) == str(tmp_path / name)
    for name in ("other.gguf", "sub/other", "other", "/other.gguf", "script:x.script"):
        assert model_from_user(name, tmp_path) == name


@pytest.mark.parametrize("source", ["user", "project", "environment"])
def test_a_name_in_settings_never_means_a_file_of_the_project(
    program: Program, source: str
) -> None:
    (program.work / "qwen.gguf").write_bytes(b"GGUF" + os.urandom(64))
    files = {"user": program.config / "config.toml", "project": program.work / ".shepherd.toml"}
    if source in files:
        files[source].parent.mkdir(parents=True, exist_ok=True)
        files[source].write_text('[model]\nname = "qwen"\n')
    extra = {"SHEPHERD_MODEL__NAME": "qwen"} if source == "environment" else {}
    done = Program(program.home, program.work, extra).run("-e", "x")
    assert done.returncode == 1
    assert "No model 'qwen'" in done.stderr
