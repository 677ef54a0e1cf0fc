import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.native import gguf
from shepherd.backends.llamacpp.native.fitting import fit_model
from shepherd.backends.llamacpp.native.gguf import check_model_file, read_header
from shepherd.backends.llamacpp.native.sizes import model_sizes
from shepherd.cli.commands.models.fit import header_rows
from shepherd.errors import ModelLoadError
from tests.backends.llamacpp.support import PUP, loaded, settings
from tests.examples import examples


def test_a_whole_file_needs_exactly_its_size() -> None:
    header = check_model_file(PUP)
    assert header.needs == PUP.stat().st_size
    assert len(header.weights) > 0
    assert header.values["general.architecture"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"GG", "is not a GGUF model"),
        (b"<html>404</html>", "is not a GGUF model"),
        (b"GGUF", "damaged or cut off"),
        (b"GGUF" + struct.pack("<I", 99), "damaged or cut off"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "damaged or cut off"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 50), "damaged or cut off"),
    ],
)
def test_a_bad_file_is_named_in_one_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=reason) as caught:
        check_model_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no model file"):
        check_model_file(tmp_path / "none.gguf")
    with pytest.raises(ModelLoadError, match="is a directory"):
        check_model_file(tmp_path)


@hypothesis_settings(
    max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0.0, 0.999))
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, share: float, llama: Path) -> None:
    data = llama.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelLoadError):
        check_model_file(path)


def test_parts_of_a_split_model_are_looked_for(tmp_path: Path, llama: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    second = tmp_path / "m-00002-of-00002.gguf"
    first.write_bytes(llama.read_bytes())
    with pytest.raises(ModelLoadError, match=r"m-00002-of-00002\.gguf is missing"):
        check_model_file(first)
    second.write_bytes(llama.read_bytes()[:-1])
    with pytest.raises(ModelLoadError, match="cut off"):
        check_model_file(first)
    second.write_bytes(llama.read_bytes())
    check_model_file(first)
    with pytest.raises(ModelLoadError, match="name its first part"):
        check_model_file(second)


async def test_what_only_llama_cpp_can_see_is_told_with_its_reason(
    tmp_path: Path, llama: Path
) -> None:
    path = _renamed_architecture(llama, tmp_path / "strange.gguf")
    with pytest.raises(ModelLoadError, match="lxama"):
        await LlamaCppBackend.load(path, settings())


async def test_a_context_that_can_not_be_had_is_told(llama: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"No context of 512 tokens.*V cache"):
        await LlamaCppBackend.load(llama, settings(cache_type_v="q4_0", flash_attention="off"))


async def test_a_failed_load_leaves_the_next_one_alone(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(ModelLoadError):
        await LlamaCppBackend.load(tmp_path / "none.gguf", settings())
    async with loaded(llama) as backend:
        assert backend.alive
        assert backend.info.id == "tiny-llama"


def _renamed_architecture(model: Path, target: Path) -> Path:
    name, other = b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lxama"
    target.write_bytes(model.read_bytes().replace(name, other, 1))
    return target


def header(*parts: bytes, tensors: int = 0, values: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, values) + b"".join(parts)


def text(content: str, length: int | None = None) -> bytes:
    encoded = content.encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded


NAMED = [text("general.architecture"), struct.pack("<I", 8), text("llama")]

DAMAGED = {
    "dimensions": header(text("t"), struct.pack("<I", 4_000_000_000), bytes(99), tensors=1),
    "tensors": header(tensors=1 << 24),
    "values": header(values=1 << 24),
    "text": header(text("k", 1 << 63), values=1),
    "array": header(text("k"), struct.pack("<IIQ", 9, 8, 9), struct.pack("<Q", 1 << 63), values=1),
    "nested": header(text("k"), *[struct.pack("<IQ", 9, 1)] * 9_999, values=1),
    "layers": header(*NAMED, text("llama.block_count"), struct.pack("<II", 4, 1 << 31), values=2),
    "width": header(*NAMED, text("llama.width"), struct.pack("<IQ", 10, 1 << 63), values=2),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_header_is_told_in_a_sentence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(DAMAGED[kind] + bytes(64))
    with pytest.raises(ModelLoadError, match=r"is damaged or cut off|is cut off"):
        model_sizes(check_model_file(path), settings())


@given(
    changes=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from([1, 4, 8]),
            st.sampled_from([0, 1, 4, 8, 9, 255, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, 1 << 63]),
        ),
        min_size=1,
        max_size=4,
    )
)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_any_change_of_a_header_gives_a_header_or_a_sentence(
    changes: list[tuple[float, int, int]], llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(llama.read_bytes())
    length = read_header(llama).length
    for place, size, number in changes:
        at = 4 + int(place * (length - 4))
        content[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(content)
    with suppress(ModelLoadError):
        header = check_model_file(path)
        fit_model(header, settings())
        header_rows(header, path.stem, path.stat().st_size)


@pytest.mark.parametrize("size", [5_000, 100_000, 1 << 22])
@pytest.mark.parametrize("first", [1, 1 << 20])
def test_a_header_is_read_piece_by_piece_as_far_as_it_goes(
    size: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "_FIRST_BYTES", first)
    pieces = batched_bytes(PUP.read_bytes(), size)
    header = gguf.read_header(PUP)
    assert gguf.remote_header("pup", pieces) == header
    left = len(b"".join(pieces))
    assert left >= PUP.stat().st_size - max(2 * header.length, first) - size


def batched_bytes(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def test_what_is_no_header_elsewhere_is_told() -> None:
    data = PUP.read_bytes()
    header = gguf.read_header(PUP)
    for start in (b"", b"GGUF", b"no model", data[: header.length // 2]):
        with pytest.raises(ModelLoadError, match="far"):
            gguf.remote_header("far", [start])
