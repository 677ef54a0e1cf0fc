"""Which calls run in the sandbox, with which rights, and how a refused call can run again."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from shepherd import errors, events
from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.access import EXECUTE_COMMAND, Access, AccessKind, Claim
from shepherd.tools.layer.change import Change
from shepherd.tools.layer.commit import recover
from shepherd.tools.layer.layer import Layer, find_place
from shepherd.tools.layer.own import OwnFiles
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.repository import git_directories
from shepherd.tools.sandbox.sandbox import Confinement, Sandbox
from shepherd.tools.shell.git import changes_repository, is_git_line
from shepherd.tools.shielding import NO_RIGHTS, Rights, Shielding

_SHELL_SOCKETS = ("/dev/tcp/", "/dev/udp/")
OUTSIDE = "It runs outside the sandbox."
WITH_NETWORK = "It runs in the sandbox with network."
WITHOUT_LAYER = "It changes files as it runs."
WITHOUT_A_LAYER = "without a layer, so that it changes files as it runs"
NO_REVIEW = "No layer works here (`shepherd doctor` tells why), so `review` asks as `ask` does."
AT_HOME = (
    "The working directory holds your home directory: the first change is asked about, and files "
    "there that programs start by themselves always are."
)
TOO_LARGE = (
    "The working directory holds too many files to find every secret in it, so commands ask as "
    "without a sandbox."
)


class Command(Struct, frozen=True):
    """A call of `tool` that starts programs in the directory `place`.

    `on_event` receives notices for the user. With `is_live` it is to change files as it runs.
    """

    tool: str
    accesses: tuple[Access, ...]
    place: Path
    on_event: events.EventCallback
    is_live: bool = False

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
            opened = map(_as_held, opened)
        return tuple(opened)

    def held_accesses(self) -> tuple[Access, ...]:
        """The accesses to decide on if a sandbox holds the call.

        It hides secrets, so nothing is guessed about the files that words name. What is sure to be
        read counts for rules that deny, which can tell why.
        """
        held: list[Access] = []
        for access in self.accesses:
            if access.kind is AccessKind.READ and access.claim is not Claim.MENTION:
                held.append(replace(access, claim=Claim.MENTION))
            elif access.kind is AccessKind.SHELL or access.claim is not Claim.MENTION:
                held.append(_as_held(access))
        return tuple(held)


def _as_held(access: Access) -> Access:
    """The access in a sandbox, where wildcards of rules may stand for all words of a command."""
    claim = Claim.EXACT if access.claim is Claim.HELD else access.claim
    return replace(access, claim=claim, wildcards=True)


class Plan(Struct, frozen=True):
    """The way in which a call runs: inside a `box` with these rights, or without a box.

    `policy` are the rules that decided on it. `is_contained` means that the call runs without
    approval because the box contains it. With `asks_effect`, what it has changed needs approval;
    with `drops_effect`, none of it is kept. It changes a layer that is made in `layers`. It
    `is_direct` if it changes the files themselves although other commands have layers.
    """

    verdict: Verdict
    policy: PermissionPolicy
    rights: Rights = NO_RIGHTS
    box: Box | None = None
    is_contained: bool = False
    asks_effect: bool = False
    drops_effect: bool = False
    layers: Path | None = None
    is_direct: bool = False

    @property
    def is_approved(self) -> bool:
        """Whether all that the call changes is approved with it."""
        return not (self.asks_effect or self.drops_effect)

    @property
    def sandbox_text(self) -> str:
        """The text about the sandbox in a request for approval."""
        if self.rights.outside:
            return OUTSIDE
        parts = [WITH_NETWORK] if self.rights.network else []
        parts += [WITHOUT_LAYER] if self.is_direct else []
        return " ".join(parts)

    def opening(self, refusal: Refusal, outside_policy: PermissionPolicy) -> "Opening":
        """How the call can run again after this refusal: with more rights, or without a layer.

        Outside of the box, the rules of `outside_policy` decide.
        """
        if refusal.kind is Refused.LAYER:
            plan = replace(self, rights=replace(self.rights, through=True), asks_effect=False)
            return Opening(AccessKind.SHELL, plan, refusal.text, WITHOUT_A_LAYER)
        plan = replace(self, is_contained=False, asks_effect=False)  # now the line is asked about
        if refusal.kind is Refused.NETWORK and not self.rights.network:
            rights = replace(self.rights, network=True, environments=True)
            plan = replace(plan, rights=rights)
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
        self.own = OwnFiles()
        self._layers: Path | None = None  # the directory of layers
        self._has_tried_layers = False
        self._trial = Lock()

    async def prepare(self, on_event: events.EventCallback) -> None:
        """Enable the modes `auto` and `review` if they work here; else report once why not."""
        mode = self._policy.mode
        if mode is ApproveMode.REVIEW:
            self._policy.has_layer = await self.layer_place() is not None
            if not self._policy.has_layer:
                self._notify(on_event, NO_REVIEW)
        if self._policy.awaits_first and mode in (ApproveMode.EDITS, ApproveMode.AUTO):
            self._notify(on_event, AT_HOME)
        if mode is not ApproveMode.AUTO:
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
        box = (await self._sandbox.find()).box
        if box is None:
            if verdict.decision is not Decision.DENY:
                await self._without_box(command.on_event)
            return plan
        working_layers = await self.layer_place()
        layers = None if command.is_live else working_layers
        is_direct = bool(self._sandbox.layers) and layers is None
        rights = self._rights_by_rule(command)
        plan = replace(plan, rights=rights, box=box, layers=layers, is_direct=is_direct)
        if verdict.decision is not Decision.ALLOW and not plan.rights.outside:
            # a line that is to bypass the layers needs an approval itself
            held = await self._held(plan, command, is_bypass=layers != working_layers)
            if held is not None:
                return held
        if verdict.decision is Decision.DENY:
            return plan
        # the user decides, or rules have allowed the very line: it gets what it names
        files = tuple(a for a in accesses if a.kind in (AccessKind.READ, AccessKind.WRITE))
        git = is_git_line(accesses)
        return replace(plan, rights=replace(plan.rights, git=git, environments=True, files=files))

    async def confinement(
        self, plan: Plan, place: Path, shared: Layer | None = None
    ) -> Confinement | None:
        """Where the call runs, in a `shared` layer if there is one; None without a box."""
        if plan.box is None or plan.rights.outside:
            return None
        profile, _ = await asyncio.to_thread(self._shielding.profile, place, plan.rights)
        hidden = self._secret_variables(os.environ) if plan.is_contained else frozenset[str]()
        layer = None
        if plan.layers is not None and not plan.rights.through:
            layer = shared or await asyncio.to_thread(Layer, plan.layers, profile.root)
            profile = replace(profile, layer=layer.base)
            if plan.drops_effect:  # only the layer can be changed
                profile = replace(profile, read_only=False, writable=())
        return Confinement(plan.box, profile, hidden, layer)

    def held_back(self, plan: Plan, layer: Layer, changes: Sequence[Change]) -> list[str]:
        """The paths of an effect that need an approval of their own, such as new start-up files."""
        return self._shielding.held_back(plan.rights, layer.upper, changes)

    async def layer_place(self) -> Path | None:
        """Where layers over the working directory can be made; None if none works there."""
        box = (await self._sandbox.find()).box
        return None if box is None else await asyncio.to_thread(self._tried_layers, box)

    def _tried_layers(self, box: Box) -> Path | None:
        """The directory in which layers over the working directory work, which is tried once."""
        with self._trial:  # calls that run at the same time wait for its end
            if not self._has_tried_layers:
                self._has_tried_layers = True
                for place in self._sandbox.layers:
                    recover(place)
                profile, _ = self._shielding.profile(self._policy.cwd, NO_RIGHTS)
                self._layers = find_place(box, profile, self._sandbox.layers)
            return self._layers

    async def _read_only(self, command: Command) -> Plan:
        """The plan in the mode `plan`: in a box that keeps nothing, or only if it only reads.

        The box has a layer that is dropped, or is read-only.
        """
        box, rights = (await self._sandbox.find()).box, Rights(read_only=True)
        policy, accesses, is_contained = self._policy, command.accesses, False
        layers = await self.layer_place()
        if box is not None and command.place.is_relative_to(policy.cwd):
            _, is_complete = await asyncio.to_thread(self._shielding.profile, command.place, rights)
            if is_complete:
                policy, accesses, is_contained = policy.contained(), command.held_accesses(), True
        verdict = await asyncio.to_thread(policy.decide, command.tool, accesses)
        if box is None and verdict.decision is not Decision.DENY:
            await self._without_box(command.on_event)
        is_contained = is_contained and verdict.decision is Decision.ALLOW
        return Plan(verdict, policy, rights, box, is_contained, drops_effect=True, layers=layers)

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

    async def _held(self, plan: Plan, command: Command, *, is_bypass: bool) -> Plan | None:
        """The plan for a call that a box holds, None if the user has to decide on its line."""
        is_here = command.place.is_relative_to(self._policy.cwd)
        if not is_here or self._changes_outer_repository(command, plan.layers):
            return None
        accesses = command.held_accesses()
        verdict = await asyncio.to_thread(self._policy.decide, command.tool, accesses)
        if verdict.decision is Decision.ALLOW:  # by rules whose wildcards hold in a box only
            rights = replace(plan.rights, environments=True)
            boxed = replace(plan, verdict=verdict, rights=rights, is_contained=True)
            return boxed if await self._hides_secrets(command, rights) else None
        is_auto = self._policy.mode is ApproveMode.AUTO
        asks = self._policy.mode is not ApproveMode.NONE  # whose no also answers for effects
        if is_bypass or not asks or not (is_auto or plan.layers):
            return None
        if not await self._hides_secrets(command, plan.rights):
            return plan if is_auto else None
        policy = self._policy.contained(in_layer=not is_auto)
        verdict = await asyncio.to_thread(policy.decide, command.tool, accesses)
        is_contained = verdict.decision is Decision.ALLOW
        if not is_contained and not is_auto:
            return None  # a rule asks about the line itself
        return replace(
            plan,
            verdict=verdict,
            policy=policy,
            is_contained=is_contained,
            asks_effect=not is_auto,
        )

    async def _hides_secrets(self, command: Command, rights: Rights) -> bool:
        """Whether the box hides every secret from the call; the user is told if it can't."""
        _, is_complete = await asyncio.to_thread(self._shielding.profile, command.place, rights)
        if not is_complete:
            self._notify(command.on_event, TOO_LARGE)
        return is_complete

    def _changes_outer_repository(self, command: Command, layers: Path | None) -> bool:
        """Whether it is a line of git commands that may change a repository below no layer.

        Then a box keeps git from writing there, so the user has to decide.
        """
        root = self._policy.cwd
        is_below = layers is not None and all(
            git.is_relative_to(root) and not git.is_symlink() for git in git_directories(root)
        )
        return not is_below and changes_repository(command.accesses)

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
