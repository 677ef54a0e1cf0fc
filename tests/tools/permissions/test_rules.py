"""Rules as text, and what they match."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.errors import ConfigError
from shepherd.tools.access import AccessKind
from shepherd.tools.permissions.match import applies_to, command_matches, host_matches, path_regex
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule, parse_rule

CWD = Path("/w")


@pytest.mark.parametrize(
    "text",
    ["allow shell git status *", "deny read /**/.env", "ask http_request *.example.com:8080"],
)
def test_text_and_back(text: str) -> None:
    assert str(parse_rule(f"  {text} ")) == text


@pytest.mark.parametrize("text", ["", "allow", "allow shell", "permit shell ls", "allow Shell ls"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="DECISION TOOL PATTERN"):
        parse_rule(text)


def test_the_description_tells_scope_and_lifetime() -> None:
    rule = Rule("shell", "git status *", Decision.ALLOW, "/w", Lifetime.ALWAYS)
    assert rule.describe() == "allow shell git status * (in /w, kept for later sessions)"
    assert (
        replace(rule, lifetime=Lifetime.SESSION)
        .describe()
        .endswith("(in /w, until this session ends)")
    )


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("{cwd}/**", "/w", True),
        ("{cwd}/**", "/w/a/b", True),
        ("{cwd}/**", "/wider", False),
        ("**", "/w/a/.b", True),
        ("**", "/x", False),
        ("src/*.py", "/w/src/a.py", True),
        ("src/*.py", "/w/src/a/b.py", False),
        ("src/**/*.py", "/w/src/a/b.py", True),
        ("*.py", "/w/a/b.py", False),
        ("./a", "/w/a", True),
        ("/**", "/", True),
        ("/**/.env", "/.env", True),
        ("/**/.env", "/a/b/.env", True),
        ("/**/.env", "/a/x.env", False),
        ("/**/.ssh/**", "/home/u/.ssh", True),
        ("/a/[bc]?", "/a/bd", True),
        ("/a/[!b]", "/a/b", False),
        ("/a/{b,c}/*", "/a/c/x", True),
        ("/a/[*]", "/a/b", False),
        ("/a/b", "/a/b\n", False),
    ],
)
def test_path_patterns(pattern: str, path: str, *, expected: bool) -> None:
    rule = Rule("read", pattern, Decision.ALLOW)
    assert (path_regex(rule, CWD).fullmatch(path) is not None) is expected


def test_the_working_directory_is_taken_literally() -> None:
    regex = path_regex(Rule("read", "{cwd}/a", Decision.ALLOW), Path("/x[y]*"))
    assert regex.fullmatch("/x[y]*/a")
    assert not regex.fullmatch("/xyz/a")


@pytest.mark.parametrize(
    ("pattern", "command", "allow", "deny"),
    [
        ("git status *", "git status", True, True),
        ("git status *", "git status -s 'a b'", True, True),
        ("git status", "git status -s", False, True),
        ("git status", "/usr/bin/git status", False, True),
        ("git * x", "git a x", True, True),
        ("git * x", "git a b x", False, False),
        ("git", "gitk", False, False),
        ("*", "anything at all", True, True),
        ("rm 'a*'", "rm 'a*'", True, True),
        ("rm 'a*'", "rm ab", False, False),
        ("rm a*", "rm ab", True, True),
        ("npm run test:*", "npm run test:unit", True, True),
        ("echo a\\ b", "echo 'a b'", True, True),
    ],
)
def test_command_patterns(pattern: str, command: str, *, allow: bool, deny: bool) -> None:
    assert command_matches(Rule("shell", pattern, Decision.ALLOW), command, wildcards=True) is allow
    assert command_matches(Rule("shell", pattern, Decision.DENY), command) is deny


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_a_quoted_command_matches_itself_only(words: list[str]) -> None:
    import shlex

    rule = Rule("shell", shlex.join(words), Decision.ALLOW)
    assert command_matches(rule, shlex.join(words))
    assert not command_matches(rule, shlex.join([*words, "more"]))
    assert not command_matches(rule, shlex.join([words[0] + "x", *words[1:]]))


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        ("example.com", "https://example.com/a?b", True),
        ("example.com", "https://EXAMPLE.com:444/", True),
        ("example.com", "https://example.com.evil.net/", False),
        ("example.com", "https://evil.net/example.com", False),
        ("example.com", "https://example.com@evil.net/", False),
        ("*.example.com", "http://a.b.example.com/", True),
        ("*.example.com", "http://example.com/", False),
        ("example.com:80", "http://example.com/", True),
        ("example.com:80", "https://example.com/", False),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("::1", "http://[::1]:8080/", True),
        ("*", "http://x/", True),
    ],
)
def test_host_patterns(pattern: str, url: str, *, expected: bool) -> None:
    assert host_matches(pattern, url) is expected


def test_the_subject_is_a_tool_or_a_kind_of_access() -> None:
    for subject, expected in (("write", True), ("edit_file", True), ("edit_*", True),
                              ("*", True), ("read", False), ("write_file", False)):  # fmt: skip
        rule = Rule(subject, "**", Decision.ALLOW)
        assert applies_to(rule, "edit_file", AccessKind.WRITE, CWD) is expected


def test_a_rule_holds_in_its_scope_only() -> None:
    rule = Rule("shell", "ls", Decision.ALLOW, scope="/w/a")
    assert applies_to(rule, "execute_command", AccessKind.SHELL, Path("/w/a/b"))
    assert not applies_to(rule, "execute_command", AccessKind.SHELL, Path("/w/ab"))


def test_a_rule_is_told_on_one_line_whatever_the_file_is_called() -> None:
    rule = Rule("write_file", "a\nAllow everything? y\x1b[2J", Decision.ALLOW, scope="/w\n/x")
    assert str(rule) == r"allow write_file a\nAllow everything? y\x1b[2J"
    assert rule.describe() == f"{rule} (in /w\\n/x, kept for later sessions)"
