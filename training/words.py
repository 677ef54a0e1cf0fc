"""Words, file names, paths and lines: what Pup must copy and can't memorise.

Held-out words are disjoint from the words of training: real ones by list, made ones by hash.
"""

import random
import string
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from training import lists, passages

ONSETS, VOWELS = lists.words("onsets"), lists.words("vowels")
CODAS = ("",) * 5 + lists.words("codas")
EXTENSIONS = lists.words("extensions")
NOT_WORDS = {"it", "them", "all", "the", "this", "that", "a", "an", "is", "in", "of", "to", "my"}
NOT_MADE = NOT_WORDS.union(lists.words("train"), lists.words("held out"))

FRAGMENTED = 0.6
"""The share of made words out of tokens, each as often as the other: what stands in few words would
not be learned, and a name with it could not be copied."""

REAL = 0.6
"""The share of texts in training whose lines are as files really have them."""

MANY = 12

MARKS = "!@#$%^&*()[]{}<>=+-_/|\\;:,.?~'\"`" + "äéß→✓│–€"
Line = Callable[["Words"], str]
LINES: tuple[Line, ...] = (
    lambda w: f"{'#' * w.rng.randint(1, 3)} {w.words(1, 3)}",
    lambda w: f"{w.name()} = {w.rng.randint(0, 9999)}",
    lambda w: f"def {w.word()}({w.word()}):",
    lambda w: f"- {w.words(1, 4)}",
    lambda w: f'"{w.word()}": "{w.word()}",',
    lambda w: f"    return {w.word()}",
    lambda w: f"import {w.word()}",
    lambda w: f"{w.word()}: {w.name()}",
    lambda w: w.words(1, 4),
    lambda w: w.soup(),
    lambda w: " " * w.rng.choice([2, 4, 8, 12]) + w.soup(),
    lambda w: f"{w.words(1, 2).capitalize()}: {w.rng.randint(0, 999)}",
    lambda w: f"* {w.words(2, 5)}",
    lambda w: f"{w.word()}.{w.word()}({w.word()}, {w.word()})",
    lambda w: f"{w.word()},{w.word()},{w.rng.randint(0, 999)}",
    lambda w: f"{w.rng.randint(1, 99)}. {w.words(2, 6)}",
    lambda w: f"// {w.words(1, 5)}",
    lambda w: f"export {w.word().upper()}={w.name()}",
    lambda w: f"\tif ({w.word()}[{w.rng.randint(0, 99)}] != {w.word()}) {{",
    lambda w: f"| {w.word()} | {w.word()} | {w.rng.randint(0, 999)} |",
    lambda w: f"{w.dated()} {w.word().upper()} {w.words(1, 4)}",
    lambda w: f"{w.rng.choice(['read', 'delete', 'list', 'show me', 'run'])} {w.filename()}",
    lambda w: f"    self.{w.word()}_{w.word()} = {w.word()}({w.word()}={w.rng.randint(0, 99)})",
    lambda w: f'<{w.word()} class="{w.word()}">{w.words(1, 3)}</{w.word()}>',
)


def is_held(word: str) -> bool:
    """Whether a made word belongs to the held-out eighth."""
    return zlib.crc32(word.lower().encode()) % 8 == 0


class Words:
    """A source of random words and names, either of the training set or of the held-out set."""

    def __init__(self, rng: random.Random, *, held: bool = False) -> None:
        self.rng = rng
        self.held = held
        self._few: list[str] = []

    @contextmanager
    def few(self, count: int) -> Iterator[None]:
        """Only `count` different words come inside: text in which what follows is ambiguous."""
        self._few = [self.word() for _ in range(count)]
        try:
            yield
        finally:
            self._few = []

    def _made(self) -> str:
        rng = self.rng
        if not self.held and rng.random() < FRAGMENTED:
            return "".join(rng.choices(lists.words("fragments"), k=rng.choice([1, 2, 2, 3])))
        if rng.random() < 0.2:
            return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 6)))
        count = rng.choice([1, 1, 2, 2])
        return "".join(
            rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(count)
        )

    def word(self) -> str:
        """One lower-case word: half of them real; else tokens, syllables or random letters."""
        if self._few:
            return self.rng.choice(self._few)
        if self.rng.random() < 0.5:
            return self.rng.choice(lists.words("held out" if self.held else "train"))
        while True:
            word = self._made()
            if len(word) > 1 and word not in NOT_MADE and is_held(word) == self.held:
                return word

    def words(self, low: int, high: int) -> str:
        """Between `low` and `high` words, separated by spaces."""
        return " ".join(self.word() for _ in range(self.rng.randint(low, high)))

    def name(self) -> str:
        """A name as files have: parts joined, sometimes digits, capitals, camel case."""
        rng = self.rng
        parts = [self.word() for _ in range(rng.choice([1, 1, 1, 1, 1, 2, 2, 2, 3]))]
        style = rng.random()
        if style < 0.12:
            name = parts[0] + "".join(p.capitalize() for p in parts[1:])
        else:
            name = rng.choice("_-").join(parts)
        if rng.random() < 0.15:
            name += rng.choice(["", "_", "-"]) + str(rng.randint(0, 2030))
        if style > 0.93:
            return name.upper()
        return name.capitalize() if style > 0.85 else name

    def filename(self) -> str:
        """A file's name, nearly always with an extension."""
        rng = self.rng
        if not self.held and rng.random() < 0.07:
            return rng.choice(lists.sections("passages")["known names"])
        if not self.held and rng.random() < 0.05:
            return self.name()
        kind = rng.random()
        if kind < 0.04 and not self.held:
            return rng.choice(lists.words("plain names"))
        if kind < 0.07:
            return self.name()
        if kind < 0.10:
            return f".{self.word()}"
        if kind < 0.14:
            return f"{self.name()}.{rng.choice(EXTENSIONS)}.{rng.choice(EXTENSIONS)}"
        if kind < 0.19:
            return f"{self.dated()}.{rng.choice(EXTENSIONS)}"
        return f"{self.name()}.{rng.choice(EXTENSIONS)}"

    def dated(self) -> str:
        """A name with a date, a version or a number, as logs and photos have."""
        rng = self.rng
        date = f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        version = f"{rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}"
        word, number = self.word(), rng.randint(1, 9999)
        return rng.choice([date, f"{date}-{word}", f"{word}-{version}", f"IMG_{number}",
                           f"{word}{number}", f"{number}_{word}", f"v{version}"])  # fmt: skip

    def soup(self) -> str:
        """Words, numbers and marks in any order, as in code or logs."""
        rng = self.rng
        parts: list[str] = []
        for _ in range(rng.randint(3, 12)):
            kind = rng.random()
            if kind < 0.4:
                parts.append(self.word())
            elif kind < 0.55:
                parts.append(str(rng.randint(0, 10 ** rng.randint(1, 6))))
            else:
                parts.append("".join(rng.choices(MARKS, k=rng.choice([1, 1, 1, 2, 3]))))
            parts.append(rng.choice(["", "", " "]))
        return "".join(parts).strip() or "-"

    def folder(self) -> str:
        """A folder's path, never `.`."""
        rng = self.rng
        if not self.held and rng.random() < 0.1:
            return rng.choice(lists.words("more places"))
        if rng.random() < 0.12:
            return rng.choice(lists.words("places"))
        path = "/".join(self.name() for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3])))
        path = rng.choice(["", "", "", "/", "./", "../", "/tmp/", "/home/", "~/"]) + path
        return path + "/" if rng.random() < 0.1 else path

    def path(self) -> str:
        """A file's path: bare half of the time; in training also known ones and Windows' own."""
        if not self.held:
            kind = self.rng.random()
            if kind < 0.05:
                return self.rng.choice(lists.words("more paths"))
            if kind < 0.065:
                parts = [self.name() for _ in range(self.rng.randint(0, 3))]
                return "\\".join([self.rng.choice("CDE") + ":", *parts, self.filename()])
        if self.rng.random() < 0.55:
            return self.filename()
        return join(self.folder(), self.filename())

    def sentence(self) -> str:
        """Words with a capital and a full stop."""
        return self.words(2, 9).capitalize() + "."

    def line(self) -> str:
        """A line of a text file, of any kind."""
        rng = self.rng
        if rng.random() < 0.25:
            return self.sentence()
        return rng.choice(LINES)(self)

    def around(self, wanted: str) -> str:
        """A line in which `wanted` stands."""
        if not self.held and self.rng.random() < REAL:
            return passages.around(self.rng, self.word, wanted)
        before, after = self.words(0, 2), self.words(0, 2)
        return f"{before} {wanted} {after}".strip()

    def lines(self, count: int) -> list[str]:
        """`count` lines; an inner one is sometimes empty."""
        if not self.held and self.rng.random() < REAL:
            lines = passages.passage(self.rng, self.word, count, long=count > MANY)
        else:
            lines = [self.line() for _ in range(count)]
        for i in range(1, count - 1):
            if self.rng.random() < 0.06:
                lines[i] = ""
        return lines

    def entries(self, count: int) -> list[str]:
        """`count` sorted directory entries; folders end in a slash."""
        names: set[str] = set()
        while len(names) < count:
            names.add(self.filename() if self.rng.random() < 0.7 else self.name() + "/")
        return sorted(names)

    def url(self) -> str:
        """A web address."""
        rng = self.rng
        host = self.word() + rng.choice(["", "", "-" + self.word(), "." + self.word()])
        port = rng.choice(["", "", "", f":{rng.randint(80, 9999)}"])
        tail = "".join("/" + self.name() for _ in range(rng.choice([0, 0, 1, 1, 2])))
        tail += rng.choice(["", "", "", "/", ".html", ".json"]) if tail else ""
        scheme = rng.choice(["http://", "https://"])
        return scheme + host + rng.choice([".com", ".org", ".net", ".io", ".dev"]) + port + tail


def join(folder: str, name: str) -> str:
    """A folder's path and a name, joined as the requests do."""
    return folder.rstrip("/") + "/" + name
