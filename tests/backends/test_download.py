"""Downloads that are stopped and go on, from a hub over real HTTP."""

import fcntl
import hashlib
import random
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.catalog.hub import PullProgress, pull
from shepherd.errors import ModelLoadError
from tests.cli.hub import Hub, near_hub

DATA = random.Random(2).randbytes(50_000)
NAME = "team/model-GGUF"
PART = f"model.gguf.{hashlib.sha256(DATA).hexdigest()[:12]}.part"


@pytest.fixture(scope="module")
def server() -> Generator[Hub]:
    with near_hub({"model.gguf": DATA}) as running:
        yield running


def folder(models: Path) -> Path:
    """Where the model's files come to."""
    directory = models / "model-GGUF"
    directory.mkdir(parents=True)
    return directory


@settings(max_examples=10)
@example(len(DATA), False, None)
@example(len(DATA) + 1, False, 9)
@given(st.integers(0, len(DATA)), st.booleans(), st.integers(0, len(DATA) - 1) | st.none())
def test_it_goes_on_from_what_is_there(
    tmp_path_factory: pytest.TempPathFactory,
    server: Hub,
    there: int,
    whole: bool,  # noqa: FBT001 - hypothesis gives it by position
    cut: int | None,
) -> None:
    models = tmp_path_factory.mktemp("models")
    directory = folder(models)
    (directory / PART).write_bytes((DATA + b"?")[:there])
    steps: list[PullProgress] = []
    server.whole, server.cut = whole, None if whole else cut
    try:
        path = pull(NAME, models, steps.append)
    finally:
        server.whole, server.cut = False, None
    assert path.read_bytes() == DATA
    assert {file.name for file in directory.iterdir()} == {"model.gguf", "LICENSE"}
    assert all(0 <= step.completed <= step.total for step in steps)
    assert steps[-1].completed == len(DATA)


def test_another_version_does_not_go_on_with_the_old_one(tmp_path: Path, server: Hub) -> None:
    (folder(tmp_path) / "model.gguf.fedcba987654.part").write_bytes(b"old")
    assert pull(NAME, tmp_path, lambda _: None).read_bytes() == DATA


def test_what_the_server_does_not_have(tmp_path: Path, server: Hub) -> None:
    with pytest.raises(ModelLoadError, match="nothing there is other"):
        pull(f"{NAME}/other.gguf", tmp_path, lambda _: None)


def test_one_process_at_a_time(tmp_path: Path, server: Hub) -> None:
    with (folder(tmp_path) / PART).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ModelLoadError, match="Another process"):
            pull(NAME, tmp_path, lambda _: None)
