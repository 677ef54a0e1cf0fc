"""Which rules there are, and how one is taken back: by the shell and by `/permissions`."""

import subprocess
from pathlib import Path

from msgspec.structs import replace

from shepherd.conversation.commands.present import permission_lines
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, PermissionStore, Rule
from tests.e2e.terminal import Terminal
from tests.forked import SHEPHERD, run_forked

KEPT = Rule("shell", "git status *", Decision.ALLOW, "/w")
OTHER = Rule("write", "a", Decision.DENY)


def test_each_rule_has_its_source_and_answers_can_be_removed(tmp_path: Path) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")
    store.add(KEPT)
    policy = PermissionPolicy(tmp_path, user=[OTHER], project=[OTHER], store=store)
    policy.add(replace(OTHER, lifetime=Lifetime.SESSION))
    kept, session, settings, project = map(str, permission_lines(policy, ""))
    assert kept.startswith("- 1: allow shell git status * (in /w, kept since 2")
    assert session == "- 2: deny write a (everywhere, until this session ends, never used)"
    assert settings == "- -: deny write a (everywhere, settings, never used)"
    assert project == "- -: deny write a (everywhere, the project's .shepherd.toml, never used)"
    assert permission_lines(policy, "remove 1") == ["Removed: allow shell git status *"]
    assert store.load() == []
    permission_lines(policy, "remove 1")
    assert len(permission_lines(policy, "")) == 2
    assert len(policy.rules()) == len(PermissionPolicy(tmp_path, user=[OTHER, OTHER]).rules())


def test_the_shell_and_the_terminal_list_and_remove_the_same(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TERM": "xterm", "LANG": "C.UTF-8"}
    store = PermissionStore(tmp_path / ".config/shepherd/permissions.toml")
    for rule in (KEPT, replace(OTHER, scope="/x")):
        store.add(rule)
    work = tmp_path / "work"
    work.mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_forked([SHEPHERD, "permissions", *arguments], env, cwd=work)

    assert "- 1: allow shell git status *" in run("list").stdout
    assert run("remove", "1").stdout == "Removed: allow shell git status *\n"
    refused = run("remove", "7")
    assert refused.returncode == 1
    assert "There is no rule 7 to remove" in refused.stderr
    script = tmp_path / "script.txt"
    script.write_text("text: Never.\n")
    with Terminal([SHEPHERD, "--model", f"script:{script}"], work, env) as terminal:
        terminal.wait_for("approve: ask")
        terminal.say("/permissions")
        terminal.wait_for(r"1 +deny write a \(in /x, kept since")
        terminal.say("/permissions remove 1")
        terminal.wait_for("Removed: deny write a")
    assert store.load() == []
