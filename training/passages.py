"""Lines as files really have them: prose, code, settings, lists whose lines are alike.

Only in training, from `lists/passages.txt`. Words and numbers are changed, so that nothing of it is
worth memorising.
"""

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count

from training import lists

KINDS = {"prose": 3.0, "code": 3.0, "settings": 1.0, "everyday": 3.0}
WORD = re.compile(r"[A-Za-z]+|\d+")
LONGEST = 100
SHORT = 48

Word = Callable[[], str]
Series = Callable[[random.Random, Word], Iterator[str]]


@cache
def vocabulary() -> tuple[str, ...]:
    """Words as often as prose has them, without their capitals."""
    texts = (*lists.sections("passages")["prose"], *lists.sections("passages")["everyday"])
    return tuple(word.lower() for line in texts for word in re.findall(r"[A-Za-z]+", line))


def passage(rng: random.Random, word: Word, size: int, *, long: bool) -> list[str]:
    """`size` lines; short ones, mostly, if they are not to be `long`."""
    kind = rng.random()
    if kind < 0.35:
        lines = _consecutive(rng, size)
    elif kind < 0.42:
        lines = [_any(rng) for _ in range(size)]
    elif kind < 0.55:
        lines = [_salad(rng) for _ in range(size)]
    else:
        return _series(rng, word, size)
    most = LONGEST if long or rng.random() < 0.45 else SHORT
    share = rng.choice([0.0, 0.1, 0.3, 0.6])
    made = [changed(rng, word, line[:most], share).rstrip() or "-" for line in lines]
    if size > 1 and rng.random() < 0.4:
        _echo(rng, made)
    if rng.random() < 0.22:
        _space_out(rng, made)
    return made


def _echo(rng: random.Random, lines: list[str]) -> None:
    """Spans of words that stand in another line, too: what comes next is told by more than them."""
    for _ in range(rng.randint(1, len(lines))):
        source, at = rng.randrange(len(lines)), rng.randrange(len(lines))
        words, into = lines[source].split(" "), lines[at].split(" ")
        span, place = rng.randint(1, 4), rng.randint(0, len(into))
        start = rng.randint(0, max(0, len(words) - span))
        into[place : place + rng.choice([0, 0, span])] = words[start : start + span]
        lines[at] = " ".join(into)[: LONGEST + 20].rstrip() or "-"


def _space_out(rng: random.Random, lines: list[str]) -> None:
    """Some lines as rules, centred, or in columns: long runs of one sign."""
    for at in rng.sample(range(len(lines)), rng.randint(1, min(3, len(lines)))):
        kind = rng.random()
        if kind < 0.35:
            lines[at] = rng.choice("-=#*~_.+-=#-") * rng.randint(3, 60)
        elif kind < 0.8:
            lines[at] = " " * rng.randint(5, 40) + lines[at].strip()[:SHORT]
        else:
            cells = lines[at].split(" ")[: rng.randint(2, 4)]
            lines[at] = "".join(cell.ljust(rng.randint(8, 24)) for cell in cells).rstrip() or "-"


def changed(rng: random.Random, word: Word, line: str, share: float) -> str:
    """The line with this share of its words replaced, and half of its numbers."""

    def replace(found: re.Match[str]) -> str:
        old = found.group()
        if old.isdigit():
            return old if rng.random() < 0.5 else "".join(rng.choices("0123456789", k=len(old)))
        if rng.random() >= share:
            return old
        new = rng.choice(vocabulary()) if rng.random() < 0.6 else word()
        return (
            new.upper()
            if old.isupper() and len(old) > 1
            else new.capitalize()
            if old[0].isupper()
            else new
        )

    return WORD.sub(replace, line)


def around(rng: random.Random, word: Word, wanted: str) -> str:
    """A line in which `wanted` stands somewhere."""
    words = changed(rng, word, _any(rng)[:SHORT], 0.3).split()
    words.insert(rng.randint(0, len(words)), wanted)
    return " ".join(words)


def _consecutive(rng: random.Random, size: int) -> list[str]:
    lines = lists.sections("passages")[rng.choices(list(KINDS), list(KINDS.values()))[0]]
    start = rng.randrange(len(lines))
    return [lines[(start + i) % len(lines)] for i in range(size)]


def _any(rng: random.Random) -> str:
    return _consecutive(rng, 1)[0]


def _salad(rng: random.Random) -> str:
    """Frequent words in any order: what follows can't be guessed, only copied."""
    words = rng.choices(vocabulary(), k=rng.randint(2, 14))
    if rng.random() < 0.3:
        words[rng.randrange(len(words))] += ","
    text = " ".join(words)
    return text.capitalize() + rng.choice(".!?") if rng.random() < 0.6 else text


def _numbered(rng: random.Random, word: Word) -> Iterator[str]:
    """Lines that differ in their numbers."""
    before = " ".join(_words(rng, word, rng.randint(1, 3)))
    after = rng.choice(["", "", "", ".", ":", " " + rng.choice(vocabulary())])
    between = rng.choice([" ", " ", " ", "", "-", "_", " #", ": ", " = "])
    start, step = rng.choice([0, 1, 1, 1, rng.randint(0, 200)]), rng.choice([1, 1, 1, 2, 5, 10])
    for number in count(start, step):
        yield f"{before}{between}{number}{after}"


def _counted(rng: random.Random, word: Word) -> Iterator[str]:
    """Things and how many there are."""
    between = rng.choice([" ", " ", ": ", " = ", ",", "\t", ", "])
    most = rng.choice([9, 99, 99, 999, 99999])
    for _ in count():
        yield f"{_words(rng, word, 1)[0]}{between}{rng.randint(0, most)}"


def _few(rng: random.Random, word: Word) -> Iterator[str]:
    """Few words in ever another order."""
    words = _words(rng, word, rng.randint(2, 5))
    between = rng.choice([" ", " ", ",", ", ", "-", " | "])
    for _ in count():
        yield between.join(rng.choices(words, k=rng.randint(1, 4)))


def _listed(rng: random.Random, word: Word) -> Iterator[str]:
    """Points of a list, with a sign or a number before each."""
    sign = rng.choice(["- ", "* ", "- [ ] ", "- [x] ", "[ ] ", "> ", "# ", "", "+ "])
    numbered, most = rng.random() < 0.4, rng.randint(1, 7)
    for number in count(1):
        text = " ".join(_words(rng, word, rng.randint(1, most)))
        yield f"{number}. {text}" if numbered else sign + text


def _columns(rng: random.Random, word: Word) -> Iterator[str]:
    """Rows of a table."""
    between = rng.choice([",", ",", ";", "\t", " | ", "  "])
    kinds = rng.choices("wwnd", k=rng.randint(2, 4))
    for _ in count():
        yield between.join(_cell(rng, word, kind) for kind in kinds)


def _cell(rng: random.Random, word: Word, kind: str) -> str:
    """A word, a number or a date."""
    if kind == "w":
        return _words(rng, word, 1)[0]
    if kind == "n":
        return str(rng.randint(0, 9999))
    return f"20{rng.randint(10, 30)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _assigned(rng: random.Random, word: Word) -> Iterator[str]:
    """Settings, variables, calls: one form, other names."""
    form = rng.choice(["{a} = {n}", "{a}: {b}", "{a}={b}", '{a} = "{b}"', "export {a}={n}",
                       '"{a}": {n},', '  "{a}": "{b}",', "self.{a} = {b}", "    {a}({b}, {n})",
                       "def {a}({b}):", "import {a}", "from {a} import {b}", "<li>{a} {b}</li>",
                       "{a}[{n}] = {b}", "    return {a} + {b}", "let {a} = {n};"])  # fmt: skip
    for _ in count():
        a, b = _words(rng, word, 2)
        yield form.format(a=a, b=b, n=rng.randint(0, 999))


def _slotted(rng: random.Random, word: Word) -> Iterator[str]:
    """A sentence of which a word or two change."""
    words = _words(rng, word, rng.randint(3, 7))
    slots = rng.sample(range(len(words)), rng.randint(1, 2))
    for _ in count():
        for slot in slots:
            words[slot] = _words(rng, word, 1)[0]
        yield " ".join(words)


def _logged(rng: random.Random, word: Word) -> Iterator[str]:
    """Lines of a log, seconds or minutes apart."""
    day = _cell(rng, word, "d") + rng.choice([" ", " ", "T"])
    second = rng.randrange(80_000)
    level = rng.choice([["INFO", "WARN", "ERROR"], ["info:", "debug:"], ["-"], ["[main]", "[web]"]])
    while True:
        second += rng.choice([0, 1, 1, 2, 5, 60, rng.randint(1, 600)])
        clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        text = " ".join(_words(rng, word, rng.randint(1, 5)))
        yield f"{day}{clock} {rng.choice(level)} {text}"


SERIES: dict[Series, float] = {
    _numbered: 2, _counted: 2, _few: 1.5, _listed: 3, _columns: 1.5, _assigned: 2, _slotted: 2,
    _logged: 1.5,
}  # fmt: skip


def _series(rng: random.Random, word: Word, size: int) -> list[str]:
    """Lines of one form; half of the time under a heading."""
    lines = rng.choices(list(SERIES), list(SERIES.values()))[0](rng, word)
    made = [next(lines) for _ in range(size)]
    if size > 2 and rng.random() < 0.3:
        made[0] = _salad(rng)[:SHORT]
    return made


def _words(rng: random.Random, word: Word, size: int) -> list[str]:
    return [rng.choice(vocabulary()) if rng.random() < 0.5 else word() for _ in range(size)]
