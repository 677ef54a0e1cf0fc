"""Line numbers of settings."""

from hypothesis import given
from hypothesis import strategies as st

from shepherd.config.files import line_of

NAMES = st.sampled_from(["a", "b", "c", "dd", '"e f"', "g-h"])
VALUES = st.sampled_from(
    ["1", '"x = 1"', "true", '"""\na = 1\n[b]\n"""', "[\n  1,\n  # a = 2\n  2,\n]", "{ a = 1 }"]
)
NOISE = st.sampled_from(["", "# a = 1", "   ", "# [a]"])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[tuple[str, str], int]]:
    """A document and the line of each of its settings."""
    lines: list[str] = []
    places: dict[tuple[str, str], int] = {}
    for section in draw(st.lists(NAMES, unique=True, min_size=1)):
        lines += [*draw(st.lists(NOISE, max_size=2)), f"[{section}]"]
        for key in draw(st.lists(NAMES, unique=True, max_size=4)):
            lines += draw(st.lists(NOISE, max_size=2))
            places[section.strip('"'), key.strip('"')] = len(lines) + 1
            lines += f"{key} = {draw(VALUES)}".split("\n")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"])), places


@given(documents())
def test_each_setting_is_found_on_its_line(
    document: tuple[str, dict[tuple[str, str], int]],
) -> None:
    text, places = document
    assert {path: line_of(text, path) for path in places} == places


def test_tables_in_arrays_and_dotted_keys_are_found() -> None:
    text = "x.y = 1\n\n[[r]]\na = 1\n[[r]]\nb = 2\n"
    assert line_of(text, ("x", "y")) == 1
    assert line_of(text, ("r", 1)) == 5
    assert line_of(text, ("r", 1, "b")) == 6


def test_what_is_missing_gives_the_nearest_that_is_there() -> None:
    text = "# x\n[a]\nb = 1\n"
    assert line_of(text, ("a", "zz")) == 2
    assert line_of(text, ("zz",)) == 1


def test_a_long_file_takes_few_parses() -> None:
    text = "[a]\n" + "".join(f"k{number} = 1\n" for number in range(5_000))
    assert line_of(text, ("a", "k3456")) == 3_458


def test_a_value_over_very_many_lines_ends_the_search_nearby() -> None:
    text = "x = 1\ny = [\n" + "1,\n" * 2_000 + "]\nz = 1\n"
    assert line_of(text, ("z",)) in range(1, 2_005)
