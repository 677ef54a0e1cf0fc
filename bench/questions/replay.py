"""Sessions of commands, and how often the user is asked while they run."""

import os
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import UndoError
from shepherd.messages import ToolCall
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.permissions.policy import PermissionPolicy, own_output
from shepherd.tools.permissions.rules import Lifetime, Rule
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.boxes.landlock import Landlock
from shepherd.tools.sandbox.sandbox import Finding, Sandbox, SandboxMode
from shepherd.tools.tool import ToolContext
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.store import UndoLimits

_HERE = Path(__file__).parent
_GIT = "git -c user.name=me -c user.email=me@example.org"

Tree = dict[str, tuple[int, bytes]]


@dataclass(frozen=True)
class Session:
    """The commands of one task, in a project of one kind."""

    project: str
    task: str
    commands: tuple[str, ...]

    def make_project(self, root: Path) -> None:
        """Make the project, with two commits."""
        root.mkdir(parents=True)
        script = (_HERE / "projects" / f"{self.project}.sh").read_text("utf-8")
        commits = (
            "git init -q -b main; git config user.name me; git config user.email me@example.org; "
            "git add -A; git commit -qm Begin; echo end >> NOTES; git add -A; git commit -qm Note"
        )
        subprocess.run(["bash", "-ec", f"{script}\n{commits}"], cwd=root, check=True)


def sessions() -> list[Session]:
    """All sessions, in the order of the file."""
    made: list[Session] = []
    text = "\n" + (_HERE / "sessions.txt").read_text("utf-8")
    for block in text.split("\n== ")[1:]:
        head, _, body = block.strip().partition("\n")
        project, _, task = head.partition(": ")
        commands = [
            part.replace("\n> ", "\n").replace("\n>", "\n") for part in body[2:].split("\n$ ")
        ]
        made.append(Session(project, task, tuple(commands)))
    return made


class Yes:
    """A user who wants everything, and who says so for as long as possible."""

    def __init__(self, widest: Choice) -> None:
        self._widest = widest
        self.requests: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The widest answer that the question offers."""
        self.requests.append(request)
        return Approval(self._widest if request.rules_for(self._widest) else Choice.ONCE)


@dataclass
class Outcome:
    """What happened: the lines that were asked about, and what undo did not restore."""

    questions: list[str] = field(default_factory=list[str])
    kinds: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])
    stored: tuple[Rule, ...] = ()
    warnings: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    lost_bytes: int = 0

    @property
    def ran_outside(self) -> bool:
        """Whether a command has left its box, which the user approved."""
        return any("outside the sandbox" in result for result in self.results)


async def replay(
    session: Session,
    base: Path,
    *,
    effects: bool,
    widest: Choice,
    stored: tuple[Rule, ...] = (),
) -> Outcome:
    """Run a session through the runner of tools, then undo all of it.

    `stored` are the rules that sessions before it have left.
    """
    root = base / "project"
    session.make_project(root)
    before = view(root)
    user_rules = [replace(rule, scope=str(root)) for rule in stored]
    policy = PermissionPolicy(root, user=user_rules, own=[own_output(base / "spill")])
    layers = (base / "layers",) if effects else ()
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(Landlock(), ()))
    user = Yes(widest)
    context = ToolContext(root, base / "spill", sandbox=sandbox)
    runner = ToolRunner(default_registry(), policy, user, context)
    outcome = Outcome()

    def protects(path: Path) -> bool:
        return policy.denies("read_file", Access(AccessKind.READ, str(path)))

    keeper = UndoKeeper(base / "undo.db", root, UndoLimits(), protects, outcome.warnings.append)
    keeper.begin("session", lambda: len(outcome.results))
    runner.undo = keeper
    try:
        for command in session.commands:
            count = len(user.requests)
            call = ToolCall("call", "execute_command", {"command": command})
            outcome.results.append((await runner.run(call)).content)
            outcome.questions += [command] * (len(user.requests) - count)
        outcome.kinds = [_kind(request) for request in user.requests]
        with suppress(UndoError):  # nothing has changed
            await keeper.undo(len(session.commands), force=True)
    finally:
        await keeper.aclose()
    lasting = (rule for rule in policy.rules() if rule.lifetime is Lifetime.ALWAYS)
    outcome.stored = tuple(rule for rule in lasting if rule.scope == str(root))
    after = view(root)
    outcome.lost = [
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    ]
    outcome.lost_bytes = sum(len(before[path][1]) for path in outcome.lost if path in before)
    return outcome


def _kind(request: ApprovalRequest) -> str:
    """What a question is about, in words."""
    if request.is_effect:
        deeds = {access.target.partition(" ")[0] for access in request.accesses}
        return f"an effect that {' and '.join(f'{deed}s' for deed in sorted(deeds))}"
    kinds = {access.kind for access in request.accesses}
    if AccessKind.UNSANDBOXED in kinds:
        return "a run outside of the box"
    return "a file that programs run" if kinds == {AccessKind.WRITE} else "a line"


def view(root: Path) -> Tree:
    """Each path below `root` but git's own, with its mode and content; a link's is its target."""
    tree: Tree = {}
    for path in root.rglob("*"):
        name = path.relative_to(root)
        status = path.lstat()
        if name.parts[0] == ".git":
            continue
        if stat.S_ISLNK(status.st_mode):
            tree[str(name)] = (0, os.fsencode(path.readlink()))
        else:
            tree[str(name)] = (status.st_mode, path.read_bytes() if path.is_file() else b"")
    return tree
