"""The reader against a second parser, and against bash itself, over generated lines.

Whatever the reader claims to know must be what bash does. Where it asks, nothing is claimed. Every
line of which the second parser says otherwise goes to bash, and some on which both agree.
"""

import posixpath
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from shepherd.tools.shell.split import split_line
from shepherd.tools.shell.syntax import UnreadableError, Word, expand_glob, is_wide
from tests.examples import examples
from tests.tools.shell.lines import LineMaker
from tests.tools.shell.oracle import HOME, run_in_bash
from tests.tools.shell.second_parser import Reading, SecondParser

NASTY = [
    "ok $\\\n{IFS}bad", "ok $\\\n'\\x2e'", "ok $\\\n(bad)", "ok <\\\n(bad)", "o\\\nk",
    "ok &\\\n& bad",
    "ok >\\\n&2", "ok \"a\\\nb\"", "ok 'a\\\nb'", "ok <<E\\\nF\nbad\nEF\n",
    "ok <<E\na\\\nE\nbad\nE\n",
    "ok # \\\nbad", "ok #\\\nbad", "a\\\n#b", "ok ''#b", "y''=b ok", "x''=1 bad", "'x'=1 bad",
    "x\\=1 bad",
    "\"x\"=1 bad", "''x=1 bad", "x=''", "x='' ok", "ok ~''/x", "ok ''~/x", "ok ~'/x'", "ok a=~/x",
    "ok x:~",
    "x=~/a ok", "ok {a','b}", "ok {a\\,b}", "ok {a,'b'}", "ok '{a,b}'", "ok {a,b", "ok {}",
    "ok a{}b",
    "ok >&2- x", "ok 2>&1- x", "ok 10>f x", "ok ²>f x", "ok {PATH}>f x", "ok {x}<f", "ok a{x}>f",
    "ok 2&>f",
    "ok&>f bad", "ok&>>f", "ok >&f", "ok >& f x", "ok >|f x", "ok <>f x", "ok 1<>f", ">f ok",
    "2>f ok x",
    ">f", "ok ;;", "(ok) bad", "(ok)bad", "(ok)>f", "( (ok) )", "((ok))", "ok()", "ok ()", "ok ( )",
    "! ok", "!ok", "! ! ok", "ok | ! bad", "!", "time ok", "\\time ok", "'if' ok", "i\\f ok",
    "if''", "ok if",
    "x=1 if", ">f if", "then", "ok\rbad", "ok\u00a0bad", "ok\x0bbad", "ok\x0cbad", "ok\u2003bad",
    "ok \u3000 b",
    "ok 'a", "ok \"a", "ok a\\", "ok \\", "\\\nok", " \\\nok", "ok \\\n", "ok \\\n\nbad",
    "ok \\\n\\\n b",
    "ok <<E;bad\nx\nE\nbad", "ok <<E&bad\nx\nE", "ok <<E <<F\na\nE\nb\nF\nbad",
    "ok <<-E\n\t\tE\nbad",
    "ok <<'E'\n$(bad)\nE", "ok <<\\E\n`bad`\nE", "ok <<E\n\\E\nE", "ok <<E\n E\nE",
    "ok <<E\nE \nE", "(ok <<E\nE\n)",
    "(ok <<E)\nE\n", "ok <<E | (bad\nE\n)", "ok <<E 'x\ny'\nE\n", "ok <<E\nx", "ok <<''\nx\n\nbad",
    "ok << E\nE",
    "ok <<<x bad", "ok <<< x", "ok <<<'a\nb' c", "ok <<<\"a\" >f", "ok <<<", "ok a[1]=x",
    "a[1]=x ok", "a[ 1 ]=x ok",
    "ok a[ 1 ]=x", "x+=1 ok", "x=(bad) ok", "x= ok", "1x=a", "x-y=1 b", "ok $", "ok $ b", "ok a$",
    "ok $.", "ok \"$\"",
    "ok $'a\\'b'", "ok \"$'a\"", "ok $\"a\"", "ok \"a$\"b", "ok \"\\$x\"", "ok \"\\x\"",
    "ok \"\\\\\"", "ok \"!\"", "ok !$",
    "ok ^a^b", "ok é>f", "ok 'é'", "ok à", "ok ~a", "ok ~+", "ok ~-", "ok ~", "ok ~/", "ok a~",
    "ok ~:x", "coproc ok",
    "ok & bad", "ok &bad&", "ok && && bad", "ok | & bad", "ok |& bad", "ok ||| bad", "& ok",
    "; ok", "| ok", ") ok",
    "function ok { bad; }", "ok { bad; }", "{ ok; }", "} ok", "[[ ok ]]", "[ ok ]",
    "case x in x) bad;; esac", "ok esac",
    "ok <&-''", "ok >&1''", "ok >&f''", "ok &>f bad", "ok }<&-", "ok }>f", "ok {<f",
    "ok >& '$(bad)'", "ok >&'`bad`'", "ok >& \\$\\(bad\\)", "ok >& 'a b'", "ok &> '$(bad)'",
    "ok <<< '$(bad)'",
    "select x in a; do bad; done", "until ok; do bad; done", "ok < <(bad)", "ok \\<(bad)",
    "ok '<'(bad)", "ok @(bad)",
]  # fmt: skip
"""What two readers of shell may see differently."""

SEED = 20_261_122
LINES = examples(20_000)
AGREED = examples(2_000)


def claim(line: str, home: str = "~") -> Reading | None:
    """What the reader claims of a line in full; None if it asks."""

    def text(word: Word) -> str:
        return home + word.text[1:] if word.tilde else word.text

    try:
        commands = split_line(line)
    except UnreadableError:
        return None
    redirects = [redirect for command in commands for redirect in command.redirects]
    words = [word for c in commands for word in [*c.words, *c.assignments]]
    words += [redirect.target for redirect in redirects]
    if any(word.dynamic or (word.glob and word.text != "[") for word in words):
        return None
    named = Counter(text(r.target) for r in redirects if r.target != Word("/dev/null"))
    programs = Counter(tuple(map(text, c.words)) for c in commands if c.words)
    return programs, named


def check_with_bash(lines: Sequence[str], root: Path) -> None:
    """Fails if bash runs a command, or makes a file, that the reader did not claim."""
    for line, outcome in zip(lines, run_in_bash(lines, root), strict=True):
        reading = claim(line, HOME)
        assert reading is not None
        assert outcome.commands <= reading[0], f"bash runs more than was read in {line!r}"
        named = set(map(posixpath.normpath, reading[1]))
        assert outcome.files <= named, f"bash writes more than was read in {line!r}"


@pytest.mark.long
def test_what_is_claimed_is_what_bash_does(tmp_path: Path) -> None:
    second = SecondParser()
    lines = [*NASTY, *LineMaker(SEED).lines(LINES)]
    claims = {line: reading for line in lines if (reading := claim(line)) is not None}
    disputed = [line for line, reading in claims.items() if reading != second.read(line)]
    agreed = [line for line in claims if line not in set(disputed)]
    assert len(claims) > LINES / 3, "the reader asks for nearly everything"
    assert len(agreed) > len(claims) / 2, "the second parser understands next to nothing"
    check_with_bash([*disputed, *agreed[:AGREED]], tmp_path)


WILD = r"""
* ? [ ] [a] [!a] [^a] [[:alpha:]] [[=e=]] [[.e.]] [a-z] []a] [!]] [^]a] [.] [\e] ['e'] ['^'a]
["!"a] e n v a . ./ / sub sub/ d.d/ - \* '*' '' \[ [a/b] .. ../ ! ^ A [A-Z] [a [[:x:]
[-a] [a-] [!.] [^.] .h/ { } [[:punct:]] [.a] [[:alpha:].]
"""
NAMES = r"""
.env env .e a b.py -x [a] a] * ?a A é .E a\b sub/.env sub/a sub/b d.d/.x d.d/e .h/x .h/.env !a
^a aa
"""
WORDS = 1500


def test_no_file_that_a_wildcard_meets_is_missed(tmp_path: Path) -> None:
    for name in NAMES.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    pick = Random(SEED)
    texts = ["".join(pick.choices(WILD.split(), k=pick.randint(1, 6))) for _ in range(WORDS)]
    words = {text: word for text in texts if (word := _wild_word(text)) is not None}
    assert len(words) > WORDS / 4
    script = "".join(f"builtin printf '%s\\0' {text}; builtin printf '\\1\\0'\n" for text in words)
    output = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    expansions = output.stdout.decode().split("\1\0")[:-1]
    for (text, word), expansion in zip(words.items(), expansions, strict=True):
        files = set(map(posixpath.normpath, expansion.split("\0")[:-1])) - {word.text}
        known = set(map(posixpath.normpath, expand_glob(word, tmp_path)))
        assert files <= {*known, posixpath.normpath(word.text)}, text


def _wild_word(text: str) -> Word | None:
    try:
        words = [word for command in split_line(f"ok {text}") for word in command.words[1:]]
    except UnreadableError:
        return None
    plain = len(words) == 1 and words[0].glob and not words[0].dynamic and not is_wide(words[0])
    return words[0] if plain else None
