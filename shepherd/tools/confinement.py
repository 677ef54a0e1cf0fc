"""Which calls run in the sandbox, with which rights, and how a refused call can run again."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd import errors, events
from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.access import EXECUTE_COMMAND, Access, AccessKind, Claim
from shepherd.tools.layer.change import Change, Deed
from shepherd.tools.layer.commit import recover
from shepherd.tools.layer.layer import Layer, find_place
from shepherd.tools.permissions.files import FileRules
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.rules import Decision, Rule
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.repository import git_directories, programs_of
from shepherd.tools.sandbox.sandbox import Confinement, Sandbox
from shepherd.tools.sandbox.view.tree import TreeScanner
from shepherd.tools.shell.git import changes_repository, is_git_line

MAX_GRANTED = 32
"""Files outside the working directory that an approved command line may name and reach."""

_ENVIRONMENTS = (".venv", "venv")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys", "/dev")


class Rights(Struct, frozen=True):
    """Additional rights of one call in the sandbox.

    `git` makes the repository writable, except for hooks and settings that run programs.
    `environments` makes Python's virtual environments writable. `files` are approved accesses.
    With `read_only` the call can't write anywhere, except to its private directories. With
    `through` it changes files as it goes, without a layer.
    """

    network: bool = False
    outside: bool = False
    git: bool = False
    environments: bool = False
    files: tuple[Access, ...] = ()
    read_only: bool = False
    through: bool = False


NO_RIGHTS = Rights()


class Shielding:
    """Builds profiles; caches its scan of the working directory."""

    def __init__(self, policy: PermissionPolicy, sandbox: Sandbox, spill_dir: Path) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self._spill_dir = spill_dir
        self._home = Path("~").expanduser().resolve()
        # what was made of the rules for files, as long as these stay the same
        self._cached: tuple[list[Rule], FileRules, TreeScanner] | None = None

    def profile(self, cwd: Path, rights: Rights) -> tuple[Profile, bool]:
        """The profile of a call in `cwd`, and whether it is complete.

        It is incomplete if the working directory is too large to find all secrets in it.
        """
        files, scanner = self._current_rules()
        root = self._policy.cwd
        # files that the rules name by patterns are looked for, those with a full path are known
        shielded = scanner.scan(str(root))
        hidden, protected = {*map(Path, shielded.hidden)}, {*map(Path, shielded.protected)}
        for name in files.known_paths():
            path = Path(os.path.realpath(name))
            if files.hides(name) or files.hides(str(path)):
                hidden.add(path)
            elif path.is_relative_to(root) and files.protects(str(path)):
                protected.add(path)
        protected |= {root / name for name in files.startup_names}  # most do not exist yet
        if rights.environments:
            protected = {path for path in protected if path.name not in _ENVIRONMENTS}
        git = git_directories(root) if rights.git else ()
        protected = {path for path in protected if path not in git}
        profile = Profile(
            root=root,
            cwd=cwd,
            home=self._home,
            protected=tuple(sorted(protected)),
            hidden=tuple(sorted(hidden)),
            readable=(self._spill_dir, *self._sandbox.readable, *_granted(rights, root, _READS)),
            writable=(*self._sandbox.writable, *git, *_granted(rights, root, _WRITES)),
            network=rights.network,
            read_only=rights.read_only,
            repositories=git,
        )
        return profile, shielded.complete

    def held_back(self, rights: Rights, upper: Path, changes: Iterable[Change]) -> list[str]:
        """The changed paths that a call with these rights may not make without a question.

        What it has made stands in the directory `upper`.
        """
        files, _scanner = self._current_rules()
        root = self._policy.cwd
        git = git_directories(root) if rights.git else ()
        programs = _new_programs(git, root, upper)
        open_names = _ENVIRONMENTS if rights.environments else ()
        held: list[str] = []
        for change in changes:
            path = root / change.path
            if held and path.is_relative_to(root / held[-1]):
                continue  # a directory comes before what is in it
            if any(path.is_relative_to(directory) for directory in git):
                is_of_program = not programs.isdisjoint((path, *path.parents))
                may_run = is_of_program or (path in git and change.deed is not Deed.MODE)
            elif path.name in open_names or not files.concerns(path.name):
                continue
            else:
                may_run = files.hides(str(path)) or files.protects(str(path))
            if may_run:
                held.append(change.path)
        return held

    def _current_rules(self) -> tuple[FileRules, TreeScanner]:
        """The rules for files, and the scanner, which starts anew if the rules have changed."""
        rules, cached = self._policy.rules(), self._cached
        if cached is None or cached[0] != rules:
            files = FileRules(self._policy, self._home)
            cached = self._cached = (rules, files, TreeScanner(files))
        return cached[1], cached[2]


def _new_programs(git: Sequence[Path], root: Path, upper: Path) -> set[Path]:
    """What a layer adds to git directories in `root` that could make git run programs."""
    added: set[Path] = set()
    for directory in git:
        if directory.is_relative_to(root):
            place = upper / directory.relative_to(root)
            old = programs_of(directory)
            for path, steps in programs_of(place, directory).items():
                same = directory / path.relative_to(place)
                if not steps or steps - old.get(same, frozenset()):
                    added.add(same)
    return added


_READS = (AccessKind.READ, (Claim.EXACT, Claim.MENTION))
_WRITES = (AccessKind.WRITE, (Claim.EXACT,))


def _granted(
    rights: Rights, root: Path, accesses: tuple[AccessKind, Sequence[Claim]]
) -> Iterable[Path]:
    """The approved files outside of `root`, without directories that contain it."""
    kind, claims = accesses
    paths = (Path(a.target) for a in rights.files if a.kind is kind and a.claim in claims)
    return islice((path for path in paths if _is_apart(path, root)), MAX_GRANTED)


def _is_apart(path: Path, root: Path) -> bool:
    """Whether a path exists and opens neither the root, nor the home directory, nor the system."""
    home = Path("~").expanduser()
    if path.is_relative_to(root) or root.is_relative_to(path) or home.is_relative_to(path):
        return False
    return not any(path.is_relative_to(place) for place in _SYSTEM) and path.exists()


_SHELL_SOCKETS = ("/dev/tcp/", "/dev/udp/")
OUTSIDE = "It runs outside the sandbox."
WITH_NETWORK = "It runs in the sandbox with network."
TOO_LARGE = (
    "The working directory holds too many files to find every secret in it, so commands ask as "
    "without a sandbox."
)


class Command(Struct, frozen=True):
    """A call of `tool` that starts programs in the directory `place`.

    `on_event` receives notices for the user.
    """

    tool: str
    accesses: tuple[Access, ...]
    place: Path
    on_event: events.EventCallback

    @property
    def connects_itself(self) -> bool:
        """Whether the shell opens a connection by a redirection, which no rule covers."""
        return any(access.target.startswith(_SHELL_SOCKETS) for access in self.accesses)

    def opening(self, kind: AccessKind) -> tuple[Access, ...]:
        """The accesses of the programs, with network or outside of the sandbox."""
        shell = (access for access in self.accesses if access.kind is AccessKind.SHELL)
        opened = (replace(access, kind=kind) for access in shell)
        # with network it stays in the sandbox, so wildcards may stand for all of its words
        if kind is AccessKind.SHELL_NETWORK:
            opened = (replace(access, named=0) for access in opened)
        return tuple(opened)

    def held_accesses(self) -> tuple[Access, ...]:
        """The accesses to decide on if a sandbox holds the call.

        It hides all secrets in trees. Wildcards of rules may stand for all words.
        """
        return tuple(
            replace(access, named=0)
            for access in self.accesses
            if access.claim not in (Claim.TREE, Claim.VISIBLE_TREE, Claim.UNIGNORED_TREE)
        )


class Plan(Struct, frozen=True):
    """The way in which a call runs: inside a `box` with these rights, or without a box.

    `policy` are the rules that decided on it. `is_contained` means that the call runs without
    approval because the box contains it.
    """

    verdict: Verdict
    policy: PermissionPolicy
    rights: Rights = NO_RIGHTS
    box: Box | None = None
    is_contained: bool = False

    @property
    def sandbox_text(self) -> str:
        """The text about the sandbox in a request for approval."""
        if self.rights.outside:
            return OUTSIDE
        return WITH_NETWORK if self.rights.network else ""

    def opening(self, refusal: Refusal, outside_policy: PermissionPolicy) -> "Opening":
        """How the call can run again after this refusal: with network, or outside of the box.

        There the rules of `outside_policy` decide.
        """
        plan = replace(self, is_contained=False)
        if refusal.kind is Refused.NETWORK and not self.rights.network:
            plan = replace(plan, rights=replace(self.rights, network=True))
            return Opening(AccessKind.SHELL_NETWORK, plan, refusal.text, "with network")
        rights = replace(self.rights, outside=True)
        plan = replace(plan, rights=rights, policy=outside_policy)
        return Opening(AccessKind.UNSANDBOXED, plan, refusal.text, "outside the sandbox")


class Opening(Struct, frozen=True):
    """A second run of a call, with more rights, after the box refused something to the first."""

    kind: AccessKind
    plan: Plan
    refused: str
    how: str

    @property
    def question(self) -> str:
        """The question for the user."""
        return f"{self.refused[:1].upper()}{self.refused[1:]}. Run it again {self.how}?"

    @property
    def note(self) -> str:
        """The note for the model after the result of the second run."""
        return f"\n[{self.refused}; the user had it run again {self.how}]"


class Confiner:
    """Plans the calls of the tools that start programs, by the rules of a session."""

    def __init__(self, policy: PermissionPolicy, sandbox: Sandbox, spill_dir: Path) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self._shielding = Shielding(policy, sandbox, spill_dir)
        self._layers: Path | None = None  # the directory of layers
        self._has_tried_layers = False

    async def prepare(self, on_event: events.EventCallback) -> None:
        """Enable the mode `auto` if a box works here; otherwise report once why it does not."""
        if self._policy.mode is not ApproveMode.AUTO:
            return
        problem = await self._sandbox.problem_of_auto()
        self._policy.has_sandbox = not problem
        if problem:
            self._notify(on_event, problem)

    async def plan(self, command: Command) -> Plan:
        """Decide how the call runs.

        Raises ToolError if the settings require a box and none works.
        """
        if self._policy.mode is ApproveMode.PLAN:
            return await self._read_only(command)
        accesses = command.accesses
        verdict = await asyncio.to_thread(self._policy.decide, command.tool, accesses)
        plan = Plan(verdict, self._policy)
        held_verdict = None
        if verdict.decision is not Decision.ALLOW:
            # options that no rule covers may still do no harm inside of a box
            held_verdict = await self._held_verdict(command)
        if verdict.decision is Decision.DENY and held_verdict is None:
            return plan
        box = (await self._sandbox.find()).box
        if box is None:
            await self._without_box(command.on_event)
            return plan
        plan = replace(plan, rights=self._rights_by_rule(command), box=box)
        if held_verdict is not None and not plan.rights.outside:
            rights = replace(plan.rights, environments=True)
            boxed = replace(plan, verdict=held_verdict, rights=rights, is_contained=True)
            return boxed if await self._hides_secrets(command, rights) else plan
        if verdict.decision is Decision.ASK and self._can_contain(plan, command):
            return await self._contained(plan, command)
        # the user decides, or rules have allowed the very line: it gets what it names
        files = tuple(a for a in accesses if a.kind in (AccessKind.READ, AccessKind.WRITE))
        git = is_git_line(accesses)
        return replace(plan, rights=replace(plan.rights, git=git, environments=True, files=files))

    async def confinement(
        self, plan: Plan, place: Path, *, goes_on: bool = False
    ) -> Confinement | None:
        """Where the call runs; None if there is no box around it.

        It changes the working directory through a layer, if one is possible, unless its programs
        go on after the call: others need to see what they have written.
        """
        if plan.box is None or plan.rights.outside:
            return None
        profile, _ = await asyncio.to_thread(self._shielding.profile, place, plan.rights)
        hidden = self._secret_variables(os.environ) if plan.is_contained else frozenset[str]()
        layer = None
        if not (goes_on or profile.read_only or plan.rights.through):
            layer = await asyncio.to_thread(self._new_layer, plan.box, profile)
            profile = replace(profile, layer=layer.base if layer else None)
        return Confinement(plan.box, profile, hidden, layer)

    def held_back(self, plan: Plan, layer: Layer, changes: Iterable[Change]) -> list[str]:
        """The paths of an effect that need an approval of their own, such as new start-up files."""
        return self._shielding.held_back(plan.rights, layer.upper, changes)

    def _new_layer(self, box: Box, profile: Profile) -> Layer | None:
        """A layer over the working directory; None if none works there, which is tried once."""
        if not self._has_tried_layers:
            self._has_tried_layers = True
            for place in self._sandbox.layers:
                recover(place)
            self._layers = find_place(box, profile, self._sandbox.layers)
        return None if self._layers is None else Layer(self._layers, profile.root)

    async def _read_only(self, command: Command) -> Plan:
        """The plan in the mode `plan`: in a read-only box, or only if the command only reads."""
        box, rights = (await self._sandbox.find()).box, Rights(read_only=True)
        policy, is_contained = self._policy, False
        if box is not None and command.place.is_relative_to(policy.cwd):
            _, is_complete = await asyncio.to_thread(self._shielding.profile, command.place, rights)
            if is_complete:
                policy, is_contained = policy.contained(), True
        verdict = await asyncio.to_thread(policy.decide, command.tool, command.accesses)
        if box is None and verdict.decision is not Decision.DENY:
            await self._without_box(command.on_event)
        is_contained = is_contained and verdict.decision is Decision.ALLOW
        return Plan(verdict, policy, rights, box, is_contained)

    async def _without_box(self, on_event: events.EventCallback) -> None:
        """Tell the user once; raises ToolError if the settings require a box."""
        missing = await self._sandbox.missing()
        if self._sandbox.mode is SandboxMode.REQUIRED:
            raise errors.ToolError(
                f"not run: commands need a sandbox (tools.sandbox = required). {missing}"
            )
        if self._sandbox.mode is SandboxMode.AUTO:
            self._notify(on_event, f"{missing} Commands run without one.")

    def _rights_by_rule(self, command: Command) -> Rights:
        """What rules open for the command without a question."""
        return Rights(
            network=self._is_open(command, AccessKind.SHELL_NETWORK),
            outside=self._is_open(command, AccessKind.UNSANDBOXED),
        )

    def _is_open(self, command: Command, kind: AccessKind) -> bool:
        """Whether rules allow it for every program of the call."""
        if command.connects_itself:
            return False
        opening = command.opening(kind)
        if not any(access.claim is Claim.EXACT for access in opening):
            return False  # without a program that is certain, nothing would have to be allowed
        return self._policy.decide(command.tool, opening).decision is Decision.ALLOW

    async def _held_verdict(self, command: Command) -> Verdict | None:
        """The verdict that allows the call if a box holds what its options may do, else None."""
        is_here = command.place.is_relative_to(self._policy.cwd)
        # a box keeps git from writing into the repository, so the user has to decide
        if not is_here or changes_repository(command.accesses):
            return None
        accesses = command.held_accesses()
        verdict = await asyncio.to_thread(self._policy.decide, command.tool, accesses)
        return verdict if verdict.decision is Decision.ALLOW else None

    async def _hides_secrets(self, command: Command, rights: Rights) -> bool:
        """Whether the box hides every secret from the call; the user is told if it can't."""
        _, is_complete = await asyncio.to_thread(self._shielding.profile, command.place, rights)
        if not is_complete:
            self._notify(command.on_event, TOO_LARGE)
        return is_complete

    def _can_contain(self, plan: Plan, command: Command) -> bool:
        """Whether the mode lets the box decide instead of the user."""
        if self._policy.mode is not ApproveMode.AUTO or plan.rights.outside:
            return False
        is_here = command.place.is_relative_to(self._policy.cwd)
        return is_here and not changes_repository(command.accesses)

    async def _contained(self, plan: Plan, command: Command) -> Plan:
        """The plan by the rules for a box; the same plan if the box can't hide every secret."""
        if not await self._hides_secrets(command, plan.rights):
            return plan
        policy = self._policy.contained()
        verdict = policy.decide(command.tool, command.accesses)
        is_contained = verdict.decision is Decision.ALLOW
        return replace(plan, verdict=verdict, policy=policy, is_contained=is_contained)

    def _secret_variables(self, environment: Mapping[str, str]) -> frozenset[str]:
        """The variables that a tool could only read after approval."""
        accesses = {name: Access(AccessKind.ENVIRONMENT, name) for name in environment}
        decide = self._policy.decide_one
        return frozenset(
            name
            for name, access in accesses.items()
            if decide(EXECUTE_COMMAND, access).decision is not Decision.ALLOW
        )

    def _notify(self, on_event: events.EventCallback, text: str) -> None:
        if self._sandbox.is_new(text):  # each text once, not for every command
            on_event(events.Notice(text, events.Topic.NOTICE))


def refusal_note(refusal: Refusal, reason: str) -> str:
    """The text for the user and the model when a refusal stands."""
    return f"{refusal.text}; not run again with more rights ({reason})"
