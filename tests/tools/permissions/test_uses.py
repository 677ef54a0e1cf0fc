"""How often rules were used: kept beside the store, and never a source of rules."""

from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest

from shepherd.config.section import ApproveMode
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import (
    Decision,
    Lifetime,
    PermissionStore,
    Rule,
    RuleUse,
    RuleUses,
)

RULE = Rule("write", "a", Decision.ALLOW)
WRITE = "write_file"


def _use_often(path: Path) -> None:
    uses = RuleUses(path)
    for _ in range(20):
        uses.note(RULE)
        uses.note(msgspec.structs.replace(RULE, lifetime=Lifetime.SESSION))
        uses.save()


def test_uses_of_several_processes_add_up(tmp_path: Path) -> None:
    path = tmp_path / "permissions-used.json"
    processes = [get_context("fork").Process(target=_use_often, args=(path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    (use,) = RuleUses(path).all().values()
    assert (use.rule, use.count) == (RULE, 60)


def test_each_rule_that_decided_counts_and_questions_of_others_do_not(tmp_path: Path) -> None:
    other = Rule("write", "b", Decision.ALLOW)
    policy = PermissionPolicy(tmp_path, user=[RULE, other])
    a, b, c = (Access(AccessKind.WRITE, str(tmp_path / name)) for name in "abc")
    for _ in range(5):
        policy.decide(WRITE, [a])  # to look is no use
    policy.note_use(policy.decide(WRITE, [a, b]))
    policy.note_use(policy.decide(WRITE, [a, c]))  # asks: neither rule has decided
    policy.mode = ApproveMode.PLAN
    policy.note_use(policy.decide(WRITE, [a]))  # refused by the mode
    assert {use.rule: use.count for use in policy.uses.all().values()} == {RULE: 1, other: 1}


def test_uses_that_can_not_be_saved_stay_in_memory(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    uses = RuleUses(tmp_path / "file" / "permissions-used.json")
    for count in (1, 2):
        uses.note(RULE)
        uses.save()
        assert uses.all()[RULE].count == count
    assert capfd.readouterr().err == ""  # the terminal's screen stays whole


def test_what_stands_in_the_file_allows_nothing(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    path = tmp_path / "permissions-used.json"
    anything = Rule("*", "*", Decision.ALLOW)
    path.write_bytes(msgspec.json.encode([RuleUse(anything, 7, "2026-01-31")]))
    policy = PermissionPolicy(tmp_path, store=store)
    access = Access(AccessKind.WRITE, str(tmp_path / "a"))
    assert policy.decide(WRITE, [access]).decision is Decision.ASK
    assert anything not in policy.rules()
    assert policy.sources() == []
    for broken in (b"", b"[{", b"\xff", b'[{"rule": 1}]'):  # the counts begin anew
        path.write_bytes(broken)
        policy.uses.note(RULE)
        assert policy.uses.all()[RULE].count == 1
        policy.uses.save()
        assert RuleUses(path).all()[RULE].count == 1
