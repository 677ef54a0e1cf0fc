"""Rules on disk."""

import re
import stat
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.errors import ConfigError
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, PermissionStore, Rule

RULE = Rule("shell", "git status *", Decision.ALLOW, "/w")


def test_rules_come_back_from_a_private_file(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "shepherd" / "permissions.toml")
    assert store.load() == []
    store.add(RULE)
    store.add(Rule("write", "a", Decision.DENY))
    store.add(RULE)
    assert store.load() == [Rule("write", "a", Decision.DENY), RULE]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert store.remove(RULE)
    assert not store.remove(RULE)
    assert store.load() == [Rule("write", "a", Decision.DENY)]


def test_the_store_knows_since_when_a_rule_is_kept(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    store.add(RULE)
    (since,) = store.dated().values()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", since)
    written = store.path.read_text()
    store.path.write_text(written.replace(f'since = "{since}"\n', ""))
    assert store.dated() == {RULE: ""}


def test_of_equal_rules_the_last_one_counts(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    other = Rule("write", "a", Decision.DENY)
    for rule in (RULE, other):
        store.add(rule)
    tables = store.path.read_text()
    store.path.write_text(tables + tables[tables.index("[[rule]]") : tables.rindex("[[rule]]")])
    store.path.chmod(0o600)
    assert store.load() == [other, RULE]


TEXT = st.text(st.characters(codec="utf-8"), min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.builds(Rule, TEXT, TEXT, st.sampled_from(Decision), TEXT), max_size=3))
def test_any_rule_survives(tmp_path: Path, rules: list[Rule]) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    store.path.unlink(missing_ok=True)
    for rule in rules:
        store.add(rule)
    assert set(store.load()) == set(rules)


GOOD = "tool = 'shell'\npattern = 'ls'\ndecision = 'allow'\n"


@pytest.mark.parametrize(
    "text",
    [
        "[[rule",
        "rule = 3",
        "rule = [1]",
        "[rule]\n" + GOOD,
        "[[rule]]\ntool = 'x'",
        "[[rule]]\ntool='x'\npattern='y'\ndecision='z'",
        "[[rule]]\n" + GOOD.replace("'shell'", "3"),
        "[[rule]]\n" + GOOD.replace("'ls'", "['ls']"),
        "[[rule]]\n" + GOOD.replace("'ls'", "true"),
        "[[rule]]\n" + GOOD + "scope = 1",
        "[[rule]]\n" + GOOD + "scop = '/w'",
        "[[rule]]\n" + GOOD + "lifetime = 'once'",
        "[[rules]]\n" + GOOD,
        "version = 2\n[[rule]]\n" + GOOD,
        "[[rule]]\n" + GOOD + "[[rule]]\ntool = 'x'",
        "[[rule]]\n" + GOOD + "[[rule]]\n" + GOOD + "tool = 'x'",
        "[[rule]]\n" + GOOD + "\x00",
        "\ufeff\ufeff[[rule]]\n" + GOOD,
    ],
)
def test_a_broken_file_is_an_error_not_a_permission(tmp_path: Path, text: str) -> None:
    path = tmp_path / "permissions.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"permissions\.toml"):
        PermissionPolicy(tmp_path, store=PermissionStore(path))
    with pytest.raises(ConfigError):
        PermissionStore(path).add(RULE)
    assert path.read_text() == text


def test_a_file_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    store.add(RULE)
    store.path.chmod(0o620)
    with pytest.raises(ConfigError, match="chmod 600"):
        store.load()


def test_only_lasting_rules_are_stored(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    policy = PermissionPolicy(tmp_path, store=store)
    policy.add(replace(RULE, lifetime=Lifetime.SESSION))
    assert store.load() == []
    policy.add(RULE)
    assert PermissionPolicy(tmp_path, store=store).rules().count(RULE) == 1


def _add(path: Path, number: int) -> None:
    for step in range(5):
        PermissionStore(path).add(Rule("shell", f"p{number} {step}", Decision.ALLOW))


def test_two_sessions_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "permissions.toml"
    workers = [get_context("spawn").Process(target=_add, args=(path, n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(PermissionStore(path).load()) == 10
