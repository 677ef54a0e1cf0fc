"""Downloads that are stopped and go on, from a server over real HTTP."""

import fcntl
import random
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.catalog.hub import DownloadError, Source, download
from shepherd.errors import ModelLoadError
from tests.cli.hub import Hub, hub

DATA = random.Random(2).randbytes(50_000)
VERSION = "0123456789abcdef"


@pytest.fixture(scope="module")
def server() -> Generator[Hub]:
    with hub({"model.gguf": DATA}) as running:
        yield running


def source(server: Hub, name: str = "model.gguf") -> Source:
    url = f"{server.url}/team/model-GGUF/resolve/main/{name}"
    return Source(url, len(DATA), VERSION)


@settings(max_examples=10)
@example(len(DATA), False, None)
@given(st.integers(0, len(DATA)), st.booleans(), st.integers(0, len(DATA) - 1) | st.none())
def test_it_goes_on_from_what_is_there(
    tmp_path_factory: pytest.TempPathFactory,
    server: Hub,
    there: int,
    whole: bool,  # noqa: FBT001 - hypothesis gives it by position
    cut: int | None,
) -> None:
    target = tmp_path_factory.mktemp("models") / "model.gguf"
    part = target.with_name(f"model.gguf.{VERSION[:12]}.part")
    part.write_bytes(DATA[:there])
    server.whole, server.cut = whole, None if whole else cut
    counts: list[int] = []
    try:
        assert download(source(server), target, counts.append) == part
    finally:
        server.whole, server.cut = False, None
    assert part.read_bytes() == DATA
    assert sum(counts) == len(DATA)


def test_another_version_does_not_go_on_with_the_old_one(tmp_path: Path, server: Hub) -> None:
    target = tmp_path / "model.gguf"
    target.with_name("model.gguf.fedcba987654.part").write_bytes(b"old")
    assert download(source(server), target, lambda _: None).read_bytes() == DATA


def test_what_the_server_does_not_have(tmp_path: Path, server: Hub) -> None:
    with pytest.raises(DownloadError) as caught:
        download(source(server, "other.gguf"), tmp_path / "other.gguf", lambda _: None)
    assert caught.value.status == 404


def test_one_process_at_a_time(tmp_path: Path, server: Hub) -> None:
    target = tmp_path / "model.gguf"
    with target.with_name(f"model.gguf.{VERSION[:12]}.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ModelLoadError, match="Another process"):
            download(source(server), target, lambda _: None)
