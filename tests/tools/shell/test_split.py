"""The splitter against the shells themselves."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, parse_rule
from shepherd.tools.shell.accesses import line_accesses
from shepherd.tools.shell.split import split_line
from shepherd.tools.shell.syntax import UnreadableError
from tests.examples import examples

SHELLS = [shell for shell in ("bash", "dash") if shutil.which(shell)]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a |& b\nc # d; e", [["a"], ["b"], ["c"]]),
        ("(a; b) && c", [["a"], ["b"], ["c"]]),
        ("echo 'a;b' \"c && d\" e\\;f", [["echo", "a;b", "c && d", "e;f"]]),
        ("echo $(a | b) `c`", [["a"], ["b"], ["c"], ["echo", "$(a | b)", "`c`"]]),
        ('echo "x $(a "b c") y"', [["a", "b c"], ["echo", 'x $(a "b c") y']]),
        ("diff <(a) <(b)", [["a"], ["b"], ["diff", "<(a)", "<(b)"]]),
        ("! a 2>&1 >out <in", [["a"]]),
        ("X=1 Y= a b=c", [["a", "b=c"]]),
        ("cat <<EOF\na; b\nEOF\nc", [["cat"], ["c"]]),
        ("cat <<'E' > f && d\n$(x)\nE", [["cat"], ["d"]]),
        ("a \\\n  b c", [["a", "b", "c"]]),
        ("g\"i\"'t' status", [["git", "status"]]),
        ("a 2>f 3 4>&- &>g", [["a", "3"]]),
        ("echo a#b {} HEAD@{1}", [["echo", "a#b", "{}", "HEAD@{1}"]]),
    ],
)
def test_commands(line: str, commands: list[list[str]]) -> None:
    assert [[word.text for word in command.words] for command in split_line(line)] == commands


@pytest.mark.parametrize(
    "line",
    [
        "for x in a; do b; done", "if a; then b; fi", "while a; do b; done", "case a in b) c; esac",
        "f() { a; }", "{ a; }", "[[ a ]]", "((a))", "echo $((1))", "echo $[1]", "a=(b c)",
        "echo 'a", 'echo "a', "echo $(a", "(a", "a)", "echo `a", "echo $'\\n'", 'echo $"a"',
        "echo ${a:-$(b)}", "cat <<E\na", "cat <<E\n$(a)\nE", "a\0b", "a\rb", "a\u00a0b", "a\\",
        "echo `a \\` b`", "a <&b", "coproc a", "select x in a; do b; done", "a >", "$(<<E)\nE",
        "a\\\nb c", "echo $\\\n{IFS}", "echo $\\\n'\\x2e'", "a &\\\n& b", "cat <<E\\\nF\na\nEF",
        "a >\\\n&2",
        "echo \"$\\\n(b)\"", "a # b \\\nc", "a {fd}>f", "a 12>f", "a >&\"\"", "a >&1x", "a &>f b",
        "x[1]=2", "x[ 1 ]=2",
        "! ! a\n!", "time a", "a | time b", "a >#b", "(a) <f", "(a) <<E\nE",
        "cat <<E | (a\nE\n)", "echo $'a",
        "cat <<E 'a\nb'\nE", "cat <<'E F'\nE F", "a $%'b'\udc80", "echo \u00e0", "a ${x}$\"b\"",
        "echo $\\x",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_said_to_be_so(line: str) -> None:
    with pytest.raises(UnreadableError):
        split_line(line)
    claims = {a.claim for a in line_accesses(line, Path("/w")) if a.kind is AccessKind.SHELL}
    assert Claim.OPAQUE in claims
    assert Claim.EXACT not in claims


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]))


@given(st.lists(st.lists(WORDS, min_size=1), min_size=1, max_size=4))
def test_quoted_words_come_back(commands: list[list[str]]) -> None:
    commands = [[f"./{words[0]}", *words[1:]] for words in commands]
    line = "; ".join(shlex.join(words) for words in commands)
    assert [[w.text for w in c.words] for c in split_line(line)] == commands


PIECES = st.sampled_from(
    [
        "ok", "bad", "ok bad", " ", " ", "\n", ";", "&&", "||", "|", "&", "(", ")", "$(", "`", '"',
        "'", "\\", "$", "${", "}", "{", "<", ">", ">>", "<<", "E", "<(", "#", "!", "x=", "1", "*",
        "2>&1", "\nE\n", "<<E", "<<-E", "<<'E'", "eval", "exec", "then", "if", "f()", "~", ",",
        "-c", "\t", "ok 1", "; ok", "| ok", "\\\n", "$'", '$"', "&>", ">|", "<>", "((", "))",
        "x=1 ", "env ", "[",
    ]
)  # fmt: skip
HARMLESS = st.sampled_from(
    [
        "ok 'bad'", 'ok "bad; bad"', "ok \\; bad", "ok <<'E'\nbad\nE\n", "ok # bad\n", "(ok)",
        "ok bad", "ok 2>&1", "ok </dev/null", "ok >/dev/null ", "ok '\n' ", "ok && ", "ok | ",
        "; ok", 'ok "', "ok '", "cat <<E\n", "\nE\n", "ok \\", "ok #",
    ]
)  # fmt: skip
LINES = st.one_of(
    st.lists(PIECES, min_size=1, max_size=9).map("".join),
    st.lists(st.one_of(HARMLESS, HARMLESS, PIECES), min_size=1, max_size=5).map("".join),
)


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ok`, which does nothing, and `bad`, which leaves a mark; there is nothing else to run."""
    directory = tmp_path_factory.mktemp("bin")
    for name, body in (("ok", ":"), ("bad", f": > {directory}/mark")):
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    return directory


@settings(
    max_examples=examples(400),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(LINES)
@example("ok $(bad)")
@example("ok `bad`")
@example("ok <<E\n$(bad)\nE\n")
@example("ok <<E\n`bad`\nE")
@example("ok\nbad")
@example("ok & bad")
@example("ok \\\n;bad")
@example('ok "$(bad)"')
@example("ok 'a' > mark")
@example("ok <(bad)")
@example("ok ${x:-`bad`}")
@example("ok # 'x\nbad")
@example("ok <<'E'\nE\nbad\nE")
@example("ok <<-E\n\tE\nbad")
@example("x=`bad` ok")
@example("ok &>/dev/null bad")
@example("ok >& '$(bad)'")
@example("ok }<&-")
@example("ok {1..2}>x")
@example("ok 2>&1>x")
def test_a_line_allowed_by_rule_runs_nothing_else(tmp_path: Path, bin_dir: Path, line: str) -> None:
    work = tmp_path / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    policy = PermissionPolicy(
        work, user=[parse_rule("allow shell ok *"), parse_rule("allow shell cat")]
    )
    if policy.decide("execute_command", line_accesses(line, work)).decision is not Decision.ALLOW:
        return
    for shell in SHELLS:
        subprocess.run(
            [str(shutil.which(shell)), "-c", line],
            cwd=work,
            env={"PATH": str(bin_dir), "HOME": str(work)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert not (bin_dir / "mark").exists(), f"{shell} ran more than ok"
        assert os.listdir(work) == [], f"{shell} wrote a file"  # noqa: PTH208


@given(LINES, LINES)
def test_a_longer_line_is_never_allowed_sooner(line: str, more: str) -> None:
    policy = PermissionPolicy(Path("/w"), user=[parse_rule("allow shell ok *")])

    def decide(text: str) -> Decision:
        return policy.decide("execute_command", line_accesses(text, Path("/w"))).decision

    if decide(f"{line}\nbad\n") is Decision.ALLOW:
        # only if `bad` became text: inside quotes or a here-document
        assert decide(line) is not Decision.ALLOW or "<<" in line
    assert decide(f"bad {more}\n; ok") is not Decision.ALLOW
