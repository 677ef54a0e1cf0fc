"""Texts that look like what models write."""

import itertools

from hypothesis import strategies as st

LINES = st.sampled_from(
    [
        "", "text", "more text", "# Title", "===", "---", "* * *", "- item", "  - nested", "2. two",
        "1. one", "   continued", "    code?", "> quote", "| a | b |", "|---|---|", "| 1 | 2 |",
        "```python", "```", "   ```", "~~~", "````", "def f():", "\tx", "a `b` **c", "é 日本 🙂",
    ]
)  # fmt: skip
MARKDOWN = st.one_of(
    st.lists(LINES, max_size=30).map("\n".join),
    st.text(alphabet="ab #-*`~>|\n 1.", max_size=80),
)
HOSTILE = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x00\x07\x08\x0b\r\x1b\x7f\x84\x9b\x9c\u2028\u202e\ud800\U000e0041"),
    )
)


def split(text: str, cuts: list[int]) -> list[str]:
    """The text cut at `cuts`."""
    bounds = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


CUTS = st.lists(st.integers(0, 400), max_size=12)
