"""A tiny grammar for requests: `[a|b]` is a choice, `{name}` a value filled in afterwards."""

import random
import re
from dataclasses import dataclass, replace
from functools import cache

from training.courtesy import (
    ASKERS,
    CLOSERS,
    HELD_ASKERS,
    HELD_CLOSERS,
    HELD_OPENERS,
    OPENERS,
)
from training.lists import sections

CHOICE = re.compile(r"\[([^\[\]]*)\]")
QUESTION = re.compile(
    r"(what|which|who|where|why|how|is|are|do|does|did|has|have|when|whose)\b", re.IGNORECASE
)
POLITE = re.compile(
    r"(could|would|can|may|might|will|in|inside|within|from|let|I|when|if|the|use|with|it|it's|need"
    r"|want|got|contents|content|listing|text|number|entry|item|first|second|third|fourth|fifth"
    r"|last|top|line|lines|pattern|glob|method|url|body|data|source|original|new|no|not|none|some"
    r"|someone|something|somewhere|bye|farewell|anything|everything|before|just in case|would"
    r"|time|task|todo"
    r"|there|there's|where|my|our|each|every|all|this|you|file|old|instead|just|do|every|any)\b"
)
LAST = " (nothing may follow)"


@dataclass(frozen=True)
class Phrases:
    """The phrasings of one intent; `held` ones never occur in training."""

    train: tuple[str, ...]
    held: tuple[str, ...]
    tail: bool = True  # whether a closing word or mark may follow
    polite: bool = True  # whether it is a request, which polite words may open and close

    def pick(self, rng: random.Random, *, held: bool) -> str:
        """One phrasing with its choices made, openers and closers added, values not filled in."""
        while True:
            text = self._draw(rng, held=held)
            if self.polite:
                text = courteous(rng, text, held=held, tail=self.tail)
            text = _written(rng, text, tail=self.tail)
            if held or _plain(text) not in _plainly(self.held):
                return text

    def bare(self, rng: random.Random, *, held: bool) -> str:
        """One phrasing, undressed and no question, to be joined with another by "and"."""
        for _ in range(20):
            text = self._draw(rng, held=held)
            if not QUESTION.match(text) and not text.endswith(("?", ":")):
                return text
        return self._draw(rng, held=held)

    def _draw(self, rng: random.Random, *, held: bool) -> str:
        while True:
            text = expand(rng, rng.choice(self.held if held else self.train))
            if held or text not in unfold(self.held):
                return text


def load(
    file: str, talk: frozenset[str] = frozenset(), more: str | None = None
) -> dict[str, Phrases]:
    """The phrasings in `lists/FILE.txt`, by intent; those in `talk` are no requests.

    `more` names a file of further ones for training.
    """
    lines = sections(file)
    found: dict[str, Phrases] = {}
    for name, train in lines.items():
        if not name.endswith(" held out"):
            intent, last = name.removesuffix(LAST), name.endswith(LAST)
            held = lines[intent + " held out"]
            found[intent] = Phrases(train, held, tail=not last, polite=intent not in talk)
    for name, train in sections(more).items() if more else ():
        intent, last = name.removesuffix(LAST), name.endswith(LAST)
        known = found.get(intent, Phrases((), (), tail=not last))
        found[intent] = replace(known, train=known.train + train)
    return found


def expand(rng: random.Random, text: str) -> str:
    """Replaces every `[a|b]` by one of its choices, inner ones first."""
    while match := CHOICE.search(text):
        text = text[: match.start()] + rng.choice(match[1].split("|")) + text[match.end() :]
    return _tidy(text)


@cache
def unfold(texts: tuple[str, ...]) -> frozenset[str]:
    """All that these phrasings can become."""
    found: set[str] = set()
    left = list(texts)
    while left:
        text = left.pop()
        match = CHOICE.search(text)
        if match is None:
            found.add(_tidy(text))
            continue
        before, after = text[: match.start()], text[match.end() :]
        left.extend(before + choice + after for choice in match[1].split("|"))
    return frozenset(found)


@cache
def _plainly(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_plain(text) for text in unfold(texts))


def _plain(text: str) -> str:
    """The text without capitals and the mark at its end."""
    return text.lower().rstrip(".!?")


def _tidy(text: str) -> str:
    return re.sub(r" +", " ", text).replace(" ,", ",").strip()


def courteous(rng: random.Random, text: str, *, held: bool, tail: bool) -> str:
    """Adds polite words at random."""
    ask = bool(QUESTION.match(text))
    if not ask and tail and rng.random() < 0.15 and not text.endswith(("?", "!", ":")):
        text += rng.choice(HELD_CLOSERS if held else CLOSERS)
    if rng.random() < 0.25 and text[0].isalpha() and text[0].islower() and not POLITE.match(text):
        if ask:
            text = rng.choice(HELD_ASKERS if held else ASKERS) + text
        else:
            text = rng.choice(HELD_OPENERS if held else OPENERS) + text
    return text


def _written(rng: random.Random, text: str, *, tail: bool) -> str:
    """Adds capitals and marks at random."""
    if tail:
        text = _mark(rng, text, ask=bool(QUESTION.match(text)))
    if text[0].isalpha() and rng.random() < 0.35:
        text = text[0].upper() + text[1:]
    return text


def _mark(rng: random.Random, text: str, *, ask: bool) -> str:
    if text == "?":
        return text
    if text.endswith("?"):
        return text[:-1] if rng.random() < 0.3 else text
    if text.endswith((".", "!", ":")):
        return text
    kind = rng.random()
    if ask and kind < 0.5:
        return text + "?"
    if kind < 0.1:
        return text + "."
    return text + "!" if kind > 0.97 else text


def fill(text: str, **values: str) -> str:
    """Puts the values in place of their `{name}`."""
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return text
