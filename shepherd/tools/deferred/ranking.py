"""Ranks tools for a query by the words in their names and descriptions (BM25)."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shepherd.messages import ToolSpec

SATURATION, LENGTH_SHARE = 1.2, 0.75
"""The usual constants k1 and b of BM25."""

NAME_WEIGHT = 4
"""The weight of a word in a tool's name; one in its description has the weight 1."""

MAX_NAME = 100
"""Characters of a wrong name that are compared."""

MIN_COVERAGE = 0.4
"""A match has at least this share of the best match's score."""

MIN_SIMILARITY = 0.75
"""The minimum share of equal letters of a misspelt word and the word that replaces it."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_IGNORED = frozenset(
    {"a", "an", "and", "by", "for", "from", "in", "is", "it", "me", "my", "of", "on", "or"}
    | {"the", "this", "to", "tool", "with"}
)


@dataclass(slots=True)
class ToolIndex:
    """The words of tools; it is built for one search, because tools come and go."""

    tools: Sequence[ToolSpec]
    _documents: list[Counter[str]] = field(default_factory=list[Counter[str]])
    _frequency: Counter[str] = field(default_factory=Counter[str])
    _mean: float = 1.0

    def __post_init__(self) -> None:
        self._documents = [_document(tool) for tool in self.tools]
        for document in self._documents:
            self._frequency.update(document.keys())
        if self._documents:
            lengths = sum(document.total() for document in self._documents)
            self._mean = max(1.0, lengths / len(self._documents))

    def search(self, query: str, limit: int) -> list[ToolSpec]:
        """The best tools, best first; a tool that the query names comes first."""
        terms = self._terms(query)
        named = query.casefold().split()
        scores = {
            i: self._score(document, terms) + (100 if self.tools[i].name.casefold() in named else 0)
            for i, document in enumerate(self._documents)
        }
        best = max(scores.values(), default=0)
        ranked = sorted(scores, key=lambda i: (-scores[i], i))
        kept = [i for i in ranked if scores[i] > 0 and scores[i] >= MIN_COVERAGE * best]
        return [self.tools[i] for i in kept[:limit]]

    def _terms(self, query: str) -> list[str]:
        """The query's words; a word that no tool has becomes the most similar one."""
        terms = dict.fromkeys(term for term in stems(query) if term not in _IGNORED)
        return [self._nearest(term) for term in terms]

    def _nearest(self, term: str) -> str:
        if term in self._frequency:
            return term
        return next(iter(_similar(term, self._frequency, 1)), term)

    def _score(self, document: Counter[str], terms: Iterable[str]) -> float:
        share = 1 - LENGTH_SHARE + LENGTH_SHARE * document.total() / self._mean
        return sum(
            self._weight(term)
            * document[term]
            * (SATURATION + 1)
            / (document[term] + SATURATION * share)
            for term in terms
            if document[term]
        )

    def _weight(self, term: str) -> float:
        number, having = len(self._documents), self._frequency[term]
        return math.log(1 + (number - having + 0.5) / (having + 0.5))


def nearest_names(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that are most similar to a wrong one: by letters, then by words."""
    name, known = name[:MAX_NAME], list(names)
    similar = _similar(name, known, limit)
    by_words = ToolIndex([ToolSpec(other, "") for other in known]).search(name, limit)
    return list(dict.fromkeys([*similar, *(tool.name for tool in by_words)]))[:limit]


def stems(text: str) -> list[str]:
    """The words of a text or a name, in lower case and without common endings."""
    return [_stem(word.casefold()) for word in _WORD.findall(text)]


def _document(tool: ToolSpec) -> Counter[str]:
    words = Counter(stems(tool.description))
    words.update(stems(" ".join(tool.parameters.get("properties", {}))))
    for word in stems(tool.name):
        words[word] += NAME_WEIGHT
    return words


def _similar(word: str, words: Iterable[str], limit: int) -> list[str]:
    from difflib import get_close_matches  # rarely needed, and slow to import

    return get_close_matches(word, list(words), limit, MIN_SIMILARITY)


def _stem(word: str) -> str:
    """`issues` and `issue` have the same stem, and so have `creating` and `created`."""
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    for ending, minimum in (("ing", 6), ("ed", 5), ("es", 5), ("s", 4), ("e", 4)):
        if len(word) >= minimum and word.endswith(ending) and not word.endswith("ss"):
            return word[: -len(ending)]
    return word
