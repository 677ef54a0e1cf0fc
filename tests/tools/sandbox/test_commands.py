"""Commands through the runner, in the box that holds here."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.events import Event, Notice
from shepherd.messages import ToolCall
from shepherd.tools.access import AccessKind
from shepherd.tools.permissions.approval import Choice, DenyingApprover
from shepherd.tools.permissions.files import FileRules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, PermissionStore, Rule, parse_rule
from shepherd.tools.sandbox.sandbox import Attempt, Finding, Sandbox
from shepherd.tools.sandbox.view.tree import MAX_SHIELDED, TreeScanner
from shepherd.tools.tool import ToolResult
from tests.tools.workshop import Workshop, open_workshop

ASK, AUTO, ALL = ApproveMode.ASK, ApproveMode.AUTO, ApproveMode.ALL
Shop = Callable[..., "Commands"]


@dataclass
class Commands:
    """Runs commands in a workshop, and keeps what the user is told."""

    workshop: Workshop
    notices: list[str] = field(default_factory=list[str])

    @property
    def root(self) -> Path:
        return self.workshop.root

    @property
    def outside(self) -> Path:
        return self.workshop.outside

    async def result(self, command: str, **arguments: Any) -> ToolResult:
        call = ToolCall("call_1", "execute_command", {"command": command, **arguments})
        return await self.workshop.runner.run(call, on_event=self._tell)

    async def run(self, command: str, **arguments: Any) -> str:
        return (await self.result(command, **arguments)).content

    @property
    def questions(self) -> list[str]:
        """What was asked about the sandbox; "" for questions about the call itself."""
        return [request.sandbox for request in self.workshop.approver.requests]

    def _tell(self, event: Event) -> bool:
        assert isinstance(event, Notice)
        assert event.id == ""
        self.notices.append(event.text)
        return True


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Opens a workshop whose commands run in a sandbox."""

    def begin(mode: ApproveMode = AUTO, **options: Any) -> Commands:
        options.setdefault("sandbox", Sandbox())
        return Commands(open_workshop(tmp_path, mode=mode, **options))

    return begin


@pytest.fixture
def port() -> Iterator[int]:
    """Something that listens on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def connect(port: int) -> str:
    """A command that connects, and says so."""
    return f"python3 fetch.py {port}"


def with_script(commands: Commands) -> Commands:
    code = "import socket, sys\nsocket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
    (commands.root / "fetch.py").write_text(f"{code}print('connected')\n")
    return commands


def without_box() -> Sandbox:
    return Sandbox(find=no_box)


def no_box() -> Finding:
    return Finding(None, (Attempt("bubblewrap", ok=False, reason="missing", advice="install it"),))


@pytest.mark.parametrize(
    "line",
    [
        "echo x > {outside}/a",
        "for f in a; do echo x > {outside}/$f; done",
        "python3 -c \"open('{outside}/a', 'w')\"",
        "eval 'touch {outside}/a'",
        "ln -s {outside} link; touch link/a",
        "cd ..; cd outside; touch a",
        "sh <<< 'touch {outside}/a'",
    ],
)
async def test_in_auto_lines_run_unasked_and_can_not_write_outside(shop: Shop, line: str) -> None:
    commands = shop()
    await commands.run(line.format(outside=commands.outside))
    assert list(commands.outside.iterdir()) == []
    assert "" not in commands.questions


async def test_in_auto_the_working_directory_changes(shop: Shop) -> None:
    commands = shop()
    assert await commands.run("for i in 1 2; do echo $i >> n; done; cat n") == "1\n2"
    assert (commands.root / "n").read_text() == "1\n2\n"
    assert commands.questions == []


@pytest.mark.parametrize(
    "line",
    ["cat .e*", "cat $(echo .en)v", "python3 -c 'print(open(\".\"+\"env\").read())'", "cat link",
     "tar c . | strings", "grep -r canary ."],
)  # fmt: skip
@pytest.mark.parametrize("mode", [AUTO, ALL])
async def test_secrets_are_not_in_the_box(shop: Shop, mode: ApproveMode, line: str) -> None:
    commands = shop(mode)
    (commands.root / ".env").write_text("KEY=canary\n")
    (commands.root / "link").symlink_to(".env")
    assert "KEY=canary" not in await commands.run(line)


async def test_variables_that_look_secret_are_missing_where_nobody_was_asked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "canary")
    assert "canary" not in await shop().run("env")
    approved = shop(ASK, answers=[Choice.ONCE])
    assert "DEPLOY_TOKEN=canary" in await approved.run("env")


async def test_private_keys_are_asked_about_before_the_model_reads_them(shop: Shop) -> None:
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{'QUJD' * 16}\n-----END RSA PRIVATE KEY-----\n"
    commands = shop()
    (commands.root / "notes.txt").write_text(key)
    assert "QUJD" not in await commands.run("cat $(ls notes*)")
    assert commands.questions == [""]


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        (["ask shell rm *"], "rm a"),
        (["ask shell rm *"], "for f in a; do rm $f; done"),
        (["ask write {cwd}/kept/**"], "echo > kept/a"),
        (["ask read {cwd}/kept/**"], "cat kept/a"),
    ],
)
async def test_rules_of_the_user_ask_in_auto(shop: Shop, rules: list[str], line: str) -> None:
    commands = shop(rules=rules)
    assert await commands.run(line) == "Error: denied by the user"
    assert commands.questions == [""]


@pytest.mark.parametrize("line", ["rm a", "for f in a; do rm $f; done", "sh -c 'rm a'"])
@pytest.mark.parametrize("mode", [AUTO, ALL])
async def test_what_a_rule_denies_stays_denied(shop: Shop, mode: ApproveMode, line: str) -> None:
    commands = shop(mode, rules=["deny shell rm *"])
    assert await commands.run(line) == "Error: denied by rule: deny shell rm *"
    assert commands.questions == []


async def test_a_rule_about_writing_holds_inside_programs_too(shop: Shop) -> None:
    commands = shop(rules=["deny write {cwd}/kept/**"])
    (commands.root / "kept").mkdir()
    await commands.run("python3 -c \"open('kept/a', 'w')\"")
    assert list((commands.root / "kept").iterdir()) == []


@pytest.mark.parametrize("find", [no_box, None])
async def test_without_a_box_auto_asks_and_says_why_once(
    shop: Shop, find: Callable[[], Finding] | None
) -> None:
    off = find is None
    sandbox = Sandbox(SandboxMode.OFF) if off else without_box()
    commands = shop(sandbox=sandbox)
    for _ in range(2):
        assert await commands.run("echo x > a") == "Error: denied by the user"
        edit = await commands.workshop.call("write_file", path="b", content="x")
        assert edit == "Error: denied by the user"
    why = "is off" if off else "bubblewrap: missing; install it"
    (about_auto, *rest) = commands.notices
    assert why in about_auto
    assert "`auto` asks as `ask` does" in about_auto
    assert len(rest) == (0 if off else 1)


async def test_with_a_box_auto_allows_edits_but_of_what_runs_by_itself(shop: Shop) -> None:
    commands = shop()
    call = commands.workshop.call
    assert not (await call("write_file", path="a", content="x")).startswith("Error")
    assert (await call("write_file", path=".git/hooks/x", content="x")).startswith("Error: denied")
    assert (await call("write_file", path="../b", content="x")).startswith("Error: denied")


async def test_commands_need_a_box_where_it_is_required(shop: Shop) -> None:
    commands = shop(ALL, sandbox=Sandbox(SandboxMode.REQUIRED, find=no_box))
    text = await commands.run("touch a")
    assert text.startswith("Error: not run: commands need a sandbox (tools.sandbox = required). ")
    assert "install it" in text
    assert not (commands.root / "a").exists()


async def test_without_a_box_commands_run_and_it_is_told_once(shop: Shop) -> None:
    commands = shop(ALL, sandbox=without_box())
    assert [await commands.run("echo x") for _ in range(2)] == ["x", "x"]
    (notice,) = commands.notices
    assert "Commands run without one" in notice


async def test_too_many_secrets_to_hide_ask(shop: Shop) -> None:
    commands = shop()
    for number in range(MAX_SHIELDED + 1):
        (commands.root / f".env.{number}").touch()
    assert await commands.run("true") == "Error: denied by the user"
    (notice,) = commands.notices
    assert "too many files" in notice


def test_a_tree_of_too_many_entries_is_not_known(tmp_path: Path) -> None:
    files = FileRules(PermissionPolicy(tmp_path), tmp_path)
    scanner = TreeScanner(files, max_entries=10)
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert scanner.scan(str(tmp_path)).complete
    (tmp_path / "10").mkdir()
    assert not scanner.scan(str(tmp_path)).complete


async def test_the_network_is_off_until_the_user_says_yes(shop: Shop, port: int) -> None:
    answers = [Choice.DENY, Choice.ONCE, Choice.SESSION]
    commands = with_script(shop(answers=answers))
    refused = await commands.run(connect(port))
    assert refused.endswith(
        "\n[the sandbox has no network; not run again with more rights (denied by the user)]"
    )
    assert "ConnectionRefusedError" in refused
    allowed = "connected\n[the sandbox has no network; the user had it run again with network]"
    assert [await commands.run(connect(port)) for _ in range(2)] == [allowed, allowed]
    assert await commands.run(connect(port)) == "connected"
    assert commands.questions == ["The sandbox has no network. Run it again with network?"] * 3
    (rule,) = commands.workshop.approver.requests[0].session
    assert str(rule) == f"allow shell_network {connect(port)}"
    assert any("has no network" in notice for notice in commands.notices)


async def test_outside_is_asked_for_with_all_rules_that_it_takes(shop: Shop) -> None:
    commands = shop(answers=[Choice.SESSION])
    line = f"cp a {commands.outside}/b"
    (commands.root / "a").write_text("x")
    text = await commands.run(line)
    assert (commands.outside / "b").read_text() == "x"
    assert text.endswith("; the user had it run again outside the sandbox]")
    (request,) = commands.workshop.approver.requests
    assert request.sandbox == (
        f"The sandbox does not show {commands.outside}/b. Run it again outside the sandbox?"
    )
    assert {access.kind for access in request.accesses} == {AccessKind.UNSANDBOXED}
    assert [str(rule) for rule in request.session] == [
        f"allow shell {line}", f"allow unsandboxed {line}"
    ]  # fmt: skip
    assert await commands.run(line) == "(no output)"
    assert len(commands.questions) == 1


async def test_a_second_run_is_held_to_what_the_line_touches_by_then(shop: Shop) -> None:
    commands = shop(ASK, answers=[Choice.ONCE] * 2)
    line = f"touch made1 made2; ls m*; touch {commands.outside}/b"
    assert "made1" in await commands.run(line)
    assert (commands.outside / "b").exists()
    assert len(commands.questions) == 2


async def test_a_line_that_can_not_be_read_gets_no_lasting_right(shop: Shop, port: int) -> None:
    commands = with_script(shop(answers=[Choice.ONCE]))
    await commands.run(f"P={port}; python3 fetch.py $P")
    (request,) = commands.workshop.approver.requests
    assert (request.session, request.always) == ((), ())


@pytest.mark.parametrize("mode", [ASK, ALL])
async def test_always_is_kept(tmp_path: Path, port: int, mode: ApproveMode) -> None:
    store = PermissionStore(tmp_path / "permissions.toml")

    def session(*answers: Choice) -> Commands:
        commands = Commands(open_workshop(tmp_path, answers=answers, sandbox=Sandbox()))
        policy = PermissionPolicy(commands.root, mode, store=store)
        runner = commands.workshop.runner
        commands.workshop.runner = type(runner)(
            runner.registry, policy, commands.workshop.approver, runner.context
        )
        return with_script(commands)

    answers = [Choice.ALWAYS] if mode is ALL else [Choice.ONCE, Choice.ALWAYS]
    await session(*answers).run(connect(port))
    stored = [str(rule) for rule in store.load()]
    assert f"allow shell_network {connect(port)}" in stored
    assert await session().run(connect(port)) == "connected"


async def test_denied_rights_are_not_asked_for(shop: Shop, port: int) -> None:
    commands = with_script(shop(rules=["deny shell_network *"]))
    text = await commands.run(connect(port))
    assert text.endswith("(denied by rule: deny shell_network *)]")
    assert commands.questions == []


async def test_nobody_to_ask_means_no(shop: Shop, port: int) -> None:
    commands = with_script(shop())
    commands.workshop.runner.approver = DenyingApprover()
    text = await commands.run(connect(port))
    assert text.endswith("(denied: approval needed and no terminal to ask)]")
    assert "ConnectionRefusedError" in text


@pytest.mark.parametrize(
    ("rule", "opens"),
    [
        ("allow shell_network {line}", True),
        ("allow unsandboxed {line}", True),
        ("allow shell {line}", False),
        ("allow execute_command *", False),
        ("allow * *", False),
        ("allow shell_network other *", False),
    ],
)
async def test_rules_open_the_box_by_name_only(
    shop: Shop, port: int, rule: str, *, opens: bool
) -> None:
    commands = with_script(shop(ALL, rules=[rule.format(line=connect(port))]))
    assert ("connected" in await commands.run(connect(port))) is opens


async def test_a_rule_opens_the_box_if_it_meets_every_command(shop: Shop, port: int) -> None:
    commands = with_script(shop(ALL, rules=["allow shell_network python3 *"]))
    assert "connected" in await commands.run(connect(port))
    for line in (f"true; {connect(port)}", f"{connect(port)} $X", f"X=1 {connect(port)}"):
        assert "connected" not in await commands.run(line)


async def test_no_rule_opens_the_network_for_the_shell_itself(shop: Shop, port: int) -> None:
    rules = ["allow shell_network *", "allow unsandboxed *", "allow shell echo *"]
    commands = shop(rules=rules)
    text = await commands.run(f"echo x > /dev/tcp/127.0.0.1/{port}")
    assert "the sandbox has no network" in text
    (request,) = commands.workshop.approver.requests
    assert (request.session, request.always) == ((), ())


async def test_a_project_can_not_open_the_box(tmp_path: Path, port: int) -> None:
    commands = with_script(Commands(open_workshop(tmp_path, sandbox=Sandbox())))
    rules = [parse_rule(f"allow {kind} *") for kind in ("shell_network", "unsandboxed")]
    policy = PermissionPolicy(commands.root, ALL, project=rules)
    runner = commands.workshop.runner
    commands.workshop.runner = type(runner)(
        runner.registry, policy, DenyingApprover(), runner.context
    )
    assert "connected" not in await commands.run(connect(port))


async def test_outside_by_a_rule_is_shown_in_the_question(shop: Shop) -> None:
    line = "touch ../outside/a"
    commands = shop(ASK, rules=[f"allow unsandboxed {line}"], answers=[Choice.ONCE])
    await commands.run(line)
    assert commands.questions == ["It runs outside the sandbox."]
    assert (commands.outside / "a").exists()


async def repository(commands: Commands) -> None:
    """A repository with a commit, made outside the sandbox."""
    names = "-c user.name=n -c user.email=e@x"
    made = await commands.run(f"git init -q . && git {names} commit -q --allow-empty -m first")
    assert made == "(no output)"


async def test_git_writes_its_repository_only_when_it_was_approved(
    shop: Shop, tmp_path: Path
) -> None:
    await repository(Commands(open_workshop(tmp_path)))
    commands = shop(answers=[Choice.DENY, Choice.ONCE])
    (commands.root / "a").write_text("x")
    assert "a" in await commands.run("git status --short")
    assert commands.questions == []
    assert await commands.run("git add a") == "Error: denied by the user"
    assert await commands.run("git add a") == "(no output)"
    assert commands.questions == ["", ""]
    assert (await commands.run("git diff --cached --stat")).startswith(" a | 1 +")


@pytest.mark.parametrize("name", ["config", "hooks/post-checkout", "info/attributes"])
async def test_what_git_runs_by_itself_stays_as_it_is(
    shop: Shop, tmp_path: Path, name: str
) -> None:
    await repository(Commands(open_workshop(tmp_path)))
    path = tmp_path / "project" / ".git" / name
    before = path.read_text() if path.exists() else None
    commands = shop(ALL)
    replaced = "mv .git .git2; mkdir -p .git/hooks; echo x > .git/hooks/post-checkout"
    for line in (f"git config --file .git/{name} core.x 1", f"true; touch .git/{name}", replaced):
        await commands.run(line)
        assert (path.read_text() if path.exists() else None) == before


async def test_a_directory_outside_asks_as_ever(shop: Shop) -> None:
    commands = shop()
    assert await commands.run("true", cwd="../outside") == "Error: denied by the user"
    assert commands.questions == [""]


async def test_what_was_approved_by_name_is_there(shop: Shop) -> None:
    commands = shop(ASK, answers=[Choice.ONCE] * 2)
    (commands.outside / "notes").write_text("text")
    assert await commands.run(f"cat {commands.outside}/notes") == "text"
    (commands.outside / "log").touch()
    await commands.run(f"echo x > {commands.outside}/log")
    assert (commands.outside / "log").read_text() == "x\n"
    assert commands.questions == ["", ""]


def test_a_rule_of_the_session_opens_and_ends(tmp_path: Path) -> None:
    policy = PermissionPolicy(tmp_path, ALL)
    rule = Rule("unsandboxed", "ls", Decision.ALLOW, lifetime=Lifetime.SESSION)
    policy.add(rule)
    assert rule in policy.rules()
    policy.end_session()
    assert rule not in policy.rules()
