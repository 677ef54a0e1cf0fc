"""Finds overlong sentences in the pages that are written by hand.

`python -m scripts.sentences` prints each of them; `--pages` prints words and the longest sentence
of each page. Code blocks, tables and generated pages do not count.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_WORDS = 30

_FENCE = re.compile(r"^\s*(```|~~~)")
_BLOCK_START = re.compile(r"^\s*([-*+]|\d+\.)\s+|^#+\s+|^\[\^?[^\]]+\]:\s")
_CODE = re.compile(r"(`+)(?!`).*?\1")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[\w)\]\"'*%][.!?])[\"')*_]*\s+")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and the line on which its paragraph begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """The number of words; inline code counts as one."""
        return sum(1 for word in self.text.split() if _WORD.search(word))


def written_pages() -> list[Path]:
    """The pages that are not generated; docs/conformance.md quotes names of tests."""
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    folders = ("docs", "config", "training", "shepherd/models")
    pages = (page for folder in folders for page in sorted((ROOT / folder).glob("*.md")))
    written = (page for page in pages if page.name != "conformance.md")
    return [*(ROOT / name for name in names), *written]


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a page in Markdown."""
    for line, block in _blocks(text):
        plain = _LINK.sub(r"\1", _CODE.sub("Code", block))
        for sentence in _END.split(plain):
            yield Sentence(line, sentence)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, headings and entries of lists, each joined to one line."""
    start, parts, fenced = 1, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = _FENCE.match(line) is not None
        skipped = fence or fenced or not line.strip() or line.lstrip().startswith("|")
        fenced = fenced != fence
        if parts and (skipped or _BLOCK_START.match(line)):
            yield start, " ".join(parts)
            parts = []
        if not skipped:
            start = start if parts else number
            parts.append(_BLOCK_START.sub("", line).strip())


def too_long(path: Path) -> list[Sentence]:
    """The sentences of a page that have more words than they should."""
    text = path.read_text(encoding="utf-8")
    return [sentence for sentence in sentences(text) if sentence.words > MAX_WORDS]


def main() -> int:
    """Print each sentence that is too long, or measure the pages; returns 1 if there is one."""
    if "--pages" in sys.argv[1:]:
        for path in written_pages():
            text = path.read_text(encoding="utf-8")
            maximum = max((sentence.words for sentence in sentences(text)), default=0)
            print(f"{path.relative_to(ROOT)}: {len(text.split())} words, longest {maximum}")
        return 0
    results = [(path, sentence) for path in written_pages() for sentence in too_long(path)]
    for path, sentence in results:
        where = f"{path.relative_to(ROOT)}:{sentence.line}"
        print(f"{where}: {sentence.words} words: {sentence.text}")
    return 1 if results else 0


if __name__ == "__main__":
    sys.exit(main())
