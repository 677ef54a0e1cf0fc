"""read_file on real files of every kind."""

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.files.textfile import detect, read_slice
from tests.tools.workshop import Workshop, open_workshop


async def test_text_comes_as_it_is(workshop: Workshop) -> None:
    (workshop.root / "a.txt").write_text("one\n\n  two\n")
    assert await workshop.call("read_file", path="a.txt") == "one\n\n  two"


async def test_an_empty_file_says_so(workshop: Workshop) -> None:
    (workshop.root / "a.txt").touch()
    assert await workshop.call("read_file", path="a.txt") == "(empty file)"


async def test_a_slice_says_how_to_read_on(workshop: Workshop) -> None:
    (workshop.root / "a.txt").write_text("".join(f"l{n}\n" for n in range(1, 11)))
    text = await workshop.call("read_file", path="a.txt", offset=3, limit=2)
    assert text == "l3\nl4\n[lines 3-4 of 10; read on with offset=5]"
    assert await workshop.call("read_file", path="a.txt", offset="9", limit=None) == "l9\nl10"


async def test_an_offset_past_the_end_is_an_error(workshop: Workshop) -> None:
    (workshop.root / "a.txt").write_text("x\ny")
    text = await workshop.call("read_file", path="a.txt", offset=3)
    assert text == "Error: offset 3 is past the end: a.txt has 2 lines"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gone.txt", "Error: no such file: gone.txt"),
        ("a.txt/b", "Error: not a directory: a.txt/b"),
        ("folder", "Error: is a directory: folder"),
        ("", "Error: the path is empty"),
        ("binary", "Error: binary file: binary (6 bytes)"),
    ],
)
async def test_what_can_not_be_read(workshop: Workshop, path: str, expected: str) -> None:
    (workshop.root / "a.txt").write_text("x")
    (workshop.root / "folder").mkdir()
    (workshop.root / "binary").write_bytes(b"ab\0\1\2\3")
    assert await workshop.call("read_file", path=path) == expected


async def test_fifos_and_devices_are_refused_without_waiting(workshop: Workshop) -> None:
    os.mkfifo(workshop.root / "fifo")
    for path in ("fifo", "/dev/zero", "/dev/stdin"):
        text = await workshop.call("read_file", path=path)
        assert text.startswith("Error: ")
    assert await workshop.call("read_file", path="fifo") == "Error: not a regular file: fifo"


async def test_a_huge_file_is_read_in_part(workshop: Workshop) -> None:
    with (workshop.root / "huge").open("wb") as file:
        file.write(b"first\nsecond\n")
        file.truncate(3 << 30)  # sparse: three gigabytes of NUL behind the text
        file.seek((3 << 30) - 5)
        file.write(b"\nlast")
    assert (await workshop.call("read_file", path="huge")).startswith("Error: binary file")
    text_file = workshop.root / "long.txt"
    text_file.write_bytes(b"x" * 99 + b"\n" + b"0123456\n" * 4_000_000)
    text = await workshop.call("read_file", path="long.txt", offset=3_999_999)
    assert text == "0123456\n0123456\n0123456"


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    workshop = open_workshop(tmp_path, output_bytes=100)
    (workshop.root / "a.txt").write_text("y" * 1000 + "\nnext\n")
    text = await workshop.call("read_file", path="a.txt")
    assert text == "y" * 100 + "\n[lines 1-1 of 2; line 1 cut at 100 bytes; read on with offset=2]"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("\ufeffmark".encode(), "mark"),
        ("grüße".encode("latin-1"), "grüße"),
        ("größe\n".encode("utf-16"), "größe"),
        ("привет, мир".encode(), "привет, мир"),
        (b"a\r\nb\r\n", "a\nb"),
    ],
)
async def test_encodings(workshop: Workshop, data: bytes, expected: str) -> None:
    (workshop.root / "a.txt").write_bytes(data)
    assert await workshop.call("read_file", path="a.txt") == expected


@given(data=st.binary(max_size=300), size=st.integers(1, 40), limit=st.integers(1, 9))
def test_paging_shows_every_byte_once(data: bytes, size: int, limit: int) -> None:
    lines = data.split(b"\n")
    total = len(lines) - (lines[-1] == b"")
    first, seen = 1, b""
    while first <= total:
        part = read_slice(io.BufferedReader(io.BytesIO(data)), first, limit, size, lambda: False)  # type: ignore[arg-type]
        assert part.total == total
        assert len(part.data) <= size
        assert part.last >= first
        whole = b"\n".join(lines[first - 1 : part.last])
        assert whole.startswith(part.data.removesuffix(b"\n"))
        assert part.cut or part.data.removesuffix(b"\n") == whole
        seen += part.data
        first = part.last + 1
        assert part.complete == (part.last == total and not part.cut)
    assert len(seen) <= len(data)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cc", "Cs"])))
def test_any_utf8_text_is_text_and_survives(text: str) -> None:
    data = text.encode()
    encoding = detect(data)
    assert encoding is not None
    assert encoding.encode(encoding.decode(data)) == data


@given(st.binary(max_size=400))
def test_decoding_is_lossless_for_any_bytes(data: bytes) -> None:
    encoding = detect(data)
    if encoding is not None and not encoding.codec.startswith("utf-16"):
        assert encoding.encode(encoding.decode(data)) == data
