"""Files for which llama.cpp ends the process are refused, and the process goes on."""

from pathlib import Path

import gguf
import pytest

from shepherd.backends.llamacpp.native import trial
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.trial import try_model
from shepherd.errors import ModelLoadError
from tests.backends.llamacpp.support import conversation, generate, loaded


def changed(source: Path, target: Path, key: str, number: int) -> Path:
    """The file with another number."""
    content = bytearray(source.read_bytes())
    field = gguf.GGUFReader(source).get_field(key)
    assert field is not None
    at = field.offset + sum(part.nbytes for part in field.parts[:-1])
    content[at : at + 4] = number.to_bytes(4, "little")
    target.write_bytes(content)
    return target


@pytest.mark.parametrize(
    ("kind", "key", "number"),
    [
        ("moe", "llama.expert_count", 100_000),
        ("deepseek4", "deepseek4.attention.output_group_count", 3),
        ("llama", "llama.rope.dimension_count", 7),
    ],
)
async def test_a_file_that_would_end_the_process_is_refused(
    kind: str, key: str, number: int, request: pytest.FixtureRequest, tmp_path: Path, llama: Path
) -> None:
    file = changed(request.getfixturevalue(kind), tmp_path / "bad.gguf", key, number)
    check_model_file(file)  # nothing is wrong with its header by itself
    for _ in range(2):
        with pytest.raises(ModelLoadError, match=r"bad\.gguf can't be loaded"):
            async with loaded(file):
                pass
    async with loaded(llama) as backend:
        assert await generate(backend, conversation("hi"), max_tokens=2)


def test_a_header_is_tried_once(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, trials = tmp_path / "tried", list[str]()

    def harmless(path: Path) -> str:
        trials.append(str(path))
        return ""

    monkeypatch.setattr(trial, "failure_of", harmless)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(llama.read_bytes())
    for file in (llama, copy, llama):
        try_model(file, folder)
    assert len(trials) == 1
    content = bytearray(copy.read_bytes())
    content[40] ^= 1  # in the name of the first value
    copy.write_bytes(content)
    try_model(copy, folder)
    assert len(trials) == 2
