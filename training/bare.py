"""What users type without quotes, in training only: texts for files, values, searches."""

import re
from collections.abc import Callable

from training import lists, passages
from training.words import EXTENSIONS, Words

Make = Callable[[Words], str]


def _comma(words: Words) -> str:
    parts = [words.words(1, 2) for _ in range(words.rng.randint(2, 5))]
    if words.rng.random() < 0.4:
        parts = [part.capitalize() for part in parts]
    return words.rng.choice([", ", ", ", ","]).join(parts)


def _and(words: Words) -> str:
    parts = [words.words(1, 2) for _ in range(words.rng.randint(2, 4))]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def _value(words: Words) -> str:
    rng = words.rng
    return rng.choice([str(rng.randint(0, 999)), f'"{words.word()}"', "true", "false", "null"])


def _object(words: Words) -> str:
    rng = words.rng
    gap = rng.choice([" ", " ", ""])
    pairs = (f'"{words.word()}":{gap}{_value(words)}' for _ in range(rng.choice([1, 1, 1, 2])))
    return "{" + f",{gap}".join(pairs) + "}"


def _array(words: Words) -> str:
    return "[" + ", ".join(_value(words) for _ in range(words.rng.randint(0, 4))) + "]"


def _everyday(words: Words) -> str:
    lines = lists.sections("passages")["everyday"]
    line = passages.changed(words.rng, words.word, words.rng.choice(lines)[:60], 0.4)
    return line.strip().replace("`", "") or words.word()


def _number(words: Words) -> str:
    rng = words.rng
    n = rng.randint
    return rng.choice([
        str(n(0, 99)), str(n(0, 9999)), str(n(1000, 65535)), f"{n(0, 9)}.{n(0, 99)}",
        f"{n(0, 30)}.{n(0, 30)}.{n(0, 30)}", f"v{n(0, 9)}.{n(0, 30)}.{n(0, 9)}", f"-{n(1, 99)}",
        f"{n(1, 255)}.{n(0, 255)}.{n(0, 255)}.{n(0, 255)}", f"{n(0, 23)}:{n(0, 59):02d}",
        f"20{n(10, 39)}-{n(1, 12):02d}-{n(1, 28):02d}", f"{n(1, 99)}%", f"{n(1, 99)}px",
        f"#{n(0, 0xFFFFFF):06x}", f"{n(1, 512)}MB", f"{n(1, 60)}s", f"{n(2, 9)}0000",
        f"{n(1, 31)}.{n(1, 12)}.20{n(10, 39)}", f"{n(1, 999)}-{n(1, 999)}",
    ])  # fmt: skip


def _setting(words: Words) -> str:
    between = words.rng.choice([": ", ": ", "=", " = ", "=", ":"])
    name = words.name() if words.rng.random() < 0.5 else words.word()
    right = words.rng.choice([_number, _number, Words.word, Words.name, Words.url, _switch])(words)
    return name + between + right


def _switch(words: Words) -> str:
    return words.rng.choice(["true", "false", "True", "False", "on", "off", "yes", "no", "none"])


def _code(words: Words) -> str:
    rng = words.rng
    a, b, c = words.word(), words.word(), words.word()
    return rng.choice([
        f"{a}(", f"{a}()", f"{a}.{b}(", f"{a}.{b}", f"{a}.{b.capitalize()}(", f"{a}({b})",
        f"{a}_{b}", f"{a}{b.capitalize()}", f"{a.upper()}_{b.upper()}", f"{a}[{b}]", f"<{a}>",
        f"</{a}>", f"import {a}", f"def {a}({b}):", f"class {a.capitalize()}", f"return {a}",
        f"{a} = {rng.randint(0, 99)}", f"if {a} == {b}:", f"print({a})", f'print("{a}")',
        f"const {a}", f"let {a} = {b};", f"{a} && {b}", f"{a}->{b}", f"{a}::{b}", f"@{a}", f"${a}",
        f"--{a}", f"{a}/{b}", f"{a}.{rng.choice(EXTENSIONS)}", f"{a}@{b}.com", f"{a} < {c}",
        f"{a}++", f"#{a}", f".{a}", f"{a};", f"func {a}(", f"fn {a}()", f"{a}!", f"{a}:",
        f"http://{a}.com", f"https://{a}.org/{b}", "http://", "https://", f"localhost:{b}",
    ])  # fmt: skip


def _capital(words: Words) -> str:
    return words.word().capitalize()


def _letters(words: Words) -> str:
    return "".join(words.rng.choices("abcdeijknxyzABCXY", k=words.rng.choice([1, 1, 2])))


CONTENTS: dict[Make, float] = {
    lambda w: w.words(1, 5): 3, _comma: 3, _and: 2, _object: 2.5, _array: 0.7, _everyday: 4,
    _number: 2, _setting: 2, _code: 2, Words.sentence: 1.5, Words.url: 0.6, Words.line: 1.5,
    lambda w: f"{w.words(1, 3)}! {w.words(1, 3)}": 0.5,
}  # fmt: skip
VALUES: dict[Make, float] = {
    Words.word: 3, _capital: 1.5, _number: 3, _setting: 2.5, _code: 4, _switch: 1, Words.name: 1,
    _letters: 0.7, lambda w: w.words(2, 3): 2, Words.url: 0.5, Words.path: 0.5,
}  # fmt: skip
SEARCHES: dict[Make, float] = {
    Words.word: 2, _code: 4, _capital: 1.5, Words.name: 2, lambda w: w.words(2, 3): 3, _number: 1.5,
    lambda w: w.rng.choice(["TODO", "FIXME", "password", "error", "main", "import", "XXX"]): 1,
}  # fmt: skip
CUTTING = (" to ", " with ", " by ", " in ", " for ", " into ", " from ", " => ")


def _any(words: Words, kinds: dict[Make, float]) -> str:
    made = words.rng.choices(list(kinds), list(kinds.values()))[0](words)
    return made.strip()


def content(words: Words) -> str:
    """A text for a file, in one line."""
    return _any(words, CONTENTS) or words.word()


def value(words: Words) -> str:
    """What is replaced, or what replaces it: no words in it at which a request could be cut."""
    while True:
        made = _any(words, VALUES)
        if made and not any(word in f" {made} " for word in CUTTING):
            return made


def changed(words: Words, text: str) -> str:
    """The text with one of its words or numbers replaced."""
    parts = re.findall(r"\w+|\W+", text)
    at = words.rng.choice([i for i, part in enumerate(parts) if part[0].isalnum()] or [0])
    number = parts[at].isdecimal()
    parts[at] = str(words.rng.randint(0, 99)) if number else words.word()
    return "".join(parts)


def pair(words: Words) -> tuple[str, str]:
    """Two values, the second often the first with a part of it changed."""
    while True:
        old = value(words)
        new = changed(words, old) if words.rng.random() < 0.4 else value(words)
        if old != new:
            return old, new


def search(words: Words) -> str:
    """A text to search for."""
    return _any(words, SEARCHES) or words.word()
