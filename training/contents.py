"""What is written to files and sent to servers."""

from collections.abc import Callable

from training.words import Words

CODE = (
    lambda w: f"print('{w.words(1, 3)}')",
    lambda w: f'console.log("{w.word()}");',
    lambda w: f"x = {w.rng.randint(0, 99)}",
    lambda w: f'{{"{w.word()}": {w.rng.randint(0, 99)}}}',
    lambda w: f"<p>{w.words(1, 3)}</p>",
    lambda w: f"# {w.words(1, 3).capitalize()}",
    lambda w: f"- {w.words(1, 3)}",
    lambda w: f"{w.word()}: {w.word()}",
    lambda w: f"import {w.word()}",
    lambda w: f"echo {w.words(1, 2)}",
    lambda w: str(w.rng.randint(0, 9999)),
    lambda w: f"{w.rng.randint(0, 9)}.{w.rng.randint(0, 20)}.{w.rng.randint(0, 9)}",
    lambda w: f"{w.word()} {w.rng.randint(0, 99)}",
    lambda w: w.words(1, 2).upper(),
)


def content(words: Words) -> str:
    """A text to be written to a file."""
    rng = words.rng
    kinds: tuple[tuple[float, Callable[[], str]], ...] = (
        (0.12, lambda: rng.choice(CODE)(words)),
        (0.33, lambda: words.words(1, 6)),
        (0.15, words.sentence),
        (0.1, lambda: f"{words.word().capitalize()}, {words.words(1, 3)}!"),
        (0.08, lambda: f"{words.name()} = {rng.randint(0, 999)}"),
        (0.06, lambda: f'print("{words.words(1, 3)}")'),
        (0.06, lambda: f"see {words.path()} and {words.filename()}"),
        (0.03, lambda: words.word() + rng.choice("éüñçøßä") + words.word()),
        (0.07, lambda: words.line().strip().replace("`", "").replace("'", "") or words.word()),
    )
    return rng.choices([make for _, make in kinds], [share for share, _ in kinds])[0]()
