"""The width of text on a terminal, in cells."""

import re
from functools import lru_cache

_VARIES = re.compile("[\u0300-\u036f\u200b-\u200d\u20d0-\u20ff\ufe00-\ufe0f\U0001f1e6-\U0001f1ff"
                     "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")  # fmt: skip
_EMOJI_VARIATION = "\ufe0f"


@lru_cache(maxsize=4096)
def character_cells(character: str) -> int:
    """The cells of one character: the larger number where libraries disagree."""
    from prompt_toolkit.utils import get_cwidth  # slow to import
    from rich.cells import get_character_cell_size

    if character == _EMOJI_VARIATION:  # many terminals widen the character before it
        return 1
    return max(get_cwidth(character), get_character_cell_size(character))


def text_cells(text: str) -> int:
    """The cells of a text without line breaks, at least as many as a terminal uses."""
    if text.isascii():
        return len(text)
    return sum(map(character_cells, text))


def width_varies(text: str) -> bool:
    """Whether terminals disagree on the width of the text."""
    return not text.isascii() and _VARIES.search(text) is not None


def is_wide(character: str) -> bool:
    """Whether a character takes two cells, as in Chinese, Japanese and Korean."""
    return character >= "\u1100" and character_cells(character) > 1
