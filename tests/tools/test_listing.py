"""list_directory."""

import pytest

from tests.tools.workshop import Workshop


async def test_names_sorted_with_directories_marked(workshop: Workshop) -> None:
    for name in ("b.txt", "A", ".hidden"):
        (workshop.root / name).touch()
    (workshop.root / "sub").mkdir()
    (workshop.root / "odd\nname").touch()
    assert await workshop.call("list_directory") == ".hidden\nA\nb.txt\nodd\\nname\nsub/"
    assert await workshop.call("list_directory", path="sub") == "(empty)"


async def test_long_listings_are_cut(workshop: Workshop) -> None:
    for number in range(503):
        (workshop.root / f"{number:04}").touch()
    lines = (await workshop.call("list_directory", path=".")).split("\n")
    assert lines[499:] == ["0499", "[3 more entries]"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("gone", "Error: no such directory: gone"), ("file", "Error: not a directory: file")],
)
async def test_errors(workshop: Workshop, path: str, expected: str) -> None:
    (workshop.root / "file").touch()
    assert await workshop.call("list_directory", path=path) == expected
