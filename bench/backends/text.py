"""The texts of the recorded answers."""

import json
import random

TOOL = "write_file"

_WORDS = (
    "the", "of", "and", "a", "to", "in", "is", "that", "it", "for", "was", "on", "are", "as",
    "with", "be", "this", "have", "from", "or", "had", "by", "not", "but", "what", "some", "we",
    "can", "out", "other", "were", "all", "there", "when", "up", "use", "your", "how", "said",
    "an", "each", "she", "which", "do", "their", "time", "if", "will", "way", "about", "many",
    "then", "them", "write", "would", "like", "so", "these", "her", "long", "make", "thing", "see",
    "him", "function", "returns", "value", "`index`", "list,", "string;", "number:", "(see",
    "below)", "“quoted”", "café", "東京", "3.14",
)  # fmt: skip
_BREAKS = ("\n\n", "\n- ", ".\n\n## ", "\n1. ")
_CODE = ("\n", "```python\n", "def ", "f(x):\n", "    return ", "x < 2\n", "```\n")


def words(count: int) -> list[str]:
    """Markdown in the pieces that a model generates: words, line breaks, and sometimes code."""
    dice = random.Random(4)
    pieces: list[str] = []
    while len(pieces) < count:
        kind = dice.random()
        if kind < 0.01:
            pieces += _CODE
        elif kind < 0.06:
            pieces.append(dice.choice(_BREAKS))
        else:
            pieces.append(f" {dice.choice(_WORDS)}")
    return pieces[:count]


def arguments(size: int) -> dict[str, str]:
    """The arguments of a call of `TOOL` with `size` words."""
    return {"path": "notes.md", "content": "".join(words(size))}


def fragments(size: int) -> list[str]:
    """Their JSON in pieces."""
    text = json.dumps(arguments(size))
    return [text[start : start + 5] for start in range(0, len(text), 5)]
