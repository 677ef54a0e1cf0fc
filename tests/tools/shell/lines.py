"""Shell lines from a seeded grammar, then damaged: what a reader of lines may get wrong."""

from collections.abc import Callable, Iterator
from random import Random

PROGRAMS = ("ok", "bad", "run", 'g"i"t', "\\ok", "'ok'", "k-x", "o'k'")
_WORDS = (
    "a", "b=c", "-n", "--", "'x y'", '"p q"', "a\\ b", "''", '""', "~", "a~b", "~/x", "{}", "{a}",
    "a#b", "'#'", "\\#", "HEAD^", "@{1}", "x:~", "=", "%", "+", "!", "[", "]", "a]", "-", "1", "22",
    "é", "'é'", "if", "done", "}", "{", "time", "\\;", "'&&'", '"|"', "\"it's\"", "'\"'", "\\'",
    '"a\\"b"', '"a\\\\b"', '"a\\nb"', "\\\\", "a\\bc", "'a\\b'", "$", "a$", '"$"', "'$x'", "\\$x",
    "^", ",", "a,b", "..", "/", "./a", "a/b", "x=~", "'\n'", '"a\nb"', "a'b'c", "\"a\"'b'", "\"!\"",
)  # fmt: skip
_ODD_WORDS = (
    "$x", "${x}", "$(bad)", "`bad`", "$((1))", "$'a'", '$"a"', "{a,b}", "{1..2}", "*", "?", "[a]",
    "<(bad)", ">(bad)", "~root", "~+", "${x:-y}", "$[1]", "x[1]=2", "a[", "$1", "$@", "?(a)",
    "@(b)",
    "x=(a)", "$\\\n{x}", "a\\\nb", "\\\n", '"\\\n"', "$\\\n'x'", "'a\\\nb'", "\"$\\\n(bad)\"",
    "a=~b",
    "\u00a0", "a\rb", "à", "\x0b", "!(a)", "*(a)", "+(a)", "${!x}", "${x@P}", "$-", "$$",
)  # fmt: skip
_REDIRECTS = (
    ">f", "> f", ">>f", ">|f", "2>f", "2>&1", ">&2", "&>f", "&>>f", "<f", "<>f", ">&f", "2>&-",
    "<&-",
    "3<&0", ">'f'", '>"f"', "1>f", ">f1 2>f2", "<<<a", "<<<'a b'", "0<f", ">&'1'", ">f\\ g", "2> f",
)  # fmt: skip
_ODD_REDIRECTS = (
    "{fd}>f", "12>f", ">&1-", ">\\\n&f", "<\\\n(a)", ">&$x", ">#f", "> #f", ">*", "é>f", ">&11",
    "2\\\n>f",
    "a2>f", "-1>f", "'2'>f", "\\2>f", "<<E", "<<-E", ">&''", ">~", "&>", ">", "<", "1>&2 2>&1",
    "²>f",
)  # fmt: skip
_JOINS = (
    "; ", ";", " && ", "&&", " || ", "||", " | ", "|", "|&", " & ", "&", "\n", " ;\n", "\n\n",
    " |\n",
    " &&\n", " \\\n&& ", " # c\n", " #\n", "\n# c 'd\n", " ; # \"\n",
)  # fmt: skip
_ODD_JOINS = (
    ";;", "; ;", "&\\\n&", "|\\\n|", " &&& ", " ;& ", " | | ", ";|", "\r\n", " #\\\n", "|& ",
    " ! ", ")",
    "(", "((", "\n;",
)  # fmt: skip
_SPACES = (" ", " ", " ", "  ", "\t", " \\\n", " \\\n ", " \t")
_MUTATIONS = "'\"\\$`(){}[]<>|&;#!~*?= \t\n-aE1="


class LineMaker:
    """Makes lines; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def lines(self, count: int) -> Iterator[str]:
        """Lines of every kind: sound ones, odd ones, and damaged ones."""
        for _ in range(count):
            odd = self._random.choice((0.0, 0.02, 0.15))
            line = self._line(odd, depth=0)
            for _ in range(self._random.choice((0, 0, 0, 1, 2))):
                line = self._damaged(line)
            yield line

    def _pick(self, sound: tuple[str, ...], strange: tuple[str, ...], odd: float) -> str:
        return self._random.choice(strange if self._random.random() < odd else sound)

    def _line(self, odd: float, depth: int) -> str:
        parts = [self._statement(odd, depth)]
        while self._random.random() < 0.45:
            parts += [self._pick(_JOINS, _ODD_JOINS, odd), self._statement(odd, depth)]
        return "".join(parts) + self._random.choice(("", "", "", "\n", " ", ";", " &", " # e"))

    def _statement(self, odd: float, depth: int) -> str:
        kinds: list[Callable[[float, int], str]] = [self._simple] * 8
        kinds += [self._subshell, self._negated, self._heredoc, self._assigned]
        return self._random.choice(kinds)(odd, depth)

    def _simple(self, odd: float, _depth: int) -> str:
        parts = [self._random.choice(PROGRAMS)]
        while self._random.random() < 0.6:
            if self._random.random() < 0.2:
                parts.append(self._pick(_REDIRECTS, _ODD_REDIRECTS, odd))
            else:
                parts.append(self._pick(_WORDS, _ODD_WORDS, odd))
        if self._random.random() < 0.1:
            parts.insert(0, self._random.choice(_REDIRECTS))
        return self._random.choice(_SPACES).join(parts)

    def _assigned(self, odd: float, depth: int) -> str:
        value = self._pick(_WORDS, _ODD_WORDS, odd)
        equals = self._random.choice(("=", "=", "+=", "'='", "\\="))
        return (
            f"{self._random.choice(('x', 'y_1', '1x'))}{equals}{value} {self._simple(odd, depth)}"
        )

    def _subshell(self, odd: float, depth: int) -> str:
        if depth > 2:
            return self._simple(odd, depth)
        blank = self._random.choice(("", " ", "\n"))
        return f"({blank}{self._line(odd, depth + 1)}{self._random.choice(('', ' ', chr(10)))})"

    def _negated(self, odd: float, depth: int) -> str:
        return "! " + self._simple(odd, depth)

    def _heredoc(self, odd: float, depth: int) -> str:
        mark = self._random.choice(("E", "'E'", '"E"', "\\E", "E"))
        dash = self._random.choice(("", "", "-"))
        texts = ("bad", "bad; bad", "E2", " E", "it's", "\tx", "# c", "a (b", *self._texts(odd))
        body = "".join(self._random.choice(texts) + "\n" for _ in range(self._random.randrange(3)))
        rest = self._random.choice(("", " a", " | ok", "; ok", " && bad", " >f", " # c"))
        end = ("\t" if dash and self._random.random() < 0.5 else "") + "E\n"
        return f"{self._simple(0, depth)} <<{dash}{mark}{rest}\n{body}{end}"

    def _texts(self, odd: float) -> tuple[str, ...]:
        return ("$(bad)", "`bad`", "a\\", "$x", "\\E") if odd else ()

    def _damaged(self, line: str) -> str:
        at = self._random.randrange(len(line) + 1)
        kind = self._random.randrange(4)
        if kind == 0:
            return line[:at] + self._random.choice(_MUTATIONS) + line[at:]
        if kind == 1:
            return line[:at] + line[at + 1 :]
        if kind == 2:
            return line[:at] + "\\\n" + line[at:]
        end = self._random.randrange(len(line) + 1)
        return line[:at] + line[min(at, end) : end] + line[at:]
