"""The decision of the rules: the last match wins, projects only tighten, secrets stay closed."""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from shepherd.config.section import ApproveMode
from shepherd.tools.access import OPENS_SANDBOX, Access, AccessKind, Claim, EffectAccess
from shepherd.tools.paths import escape_glob
from shepherd.tools.permissions import content, defaults, links, match
from shepherd.tools.permissions.repository import Doubt, RepositoryGuard, git_reason
from shepherd.tools.permissions.rules import (
    Decision,
    Lifetime,
    PermissionStore,
    Rule,
    RuleUses,
)
from shepherd.tools.text import one_line
from shepherd.tools.tool import TRAITS, Traits

_HELD_BY_SANDBOX = frozenset(
    {AccessKind.SHELL, AccessKind.READ, AccessKind.WRITE, AccessKind.REPOSITORY}
)
_ALWAYS_ASK = OPENS_SANDBOX | {AccessKind.HOOK}
"""Kinds that ask in the mode `all` too."""

_CHANGES = frozenset({AccessKind.WRITE, AccessKind.SHELL, AccessKind.EFFECT})


class Verdict(Struct, frozen=True):
    """A decision and its rule; `rule` is None if no rule matched.

    `rules` are all that decided so on the accesses of a call. `doubt` is the question about a
    repository.
    """

    decision: Decision
    rule: Rule | None = None
    note: str = ""
    doubt: Doubt | None = None
    rules: tuple[Rule, ...] = ()

    @property
    def cause(self) -> str:
        """The rule as text, or the reason if there is no rule."""
        return self.note or (str(self.rule) if self.rule else "")


class PermissionPolicy:
    """The rules of one session in one working directory.

    In rising order of weight: defaults, mode, `user` (the settings file), the store, rules added
    in this session. `project` rules come from a file that a stranger may have written, so they
    count only if they are stricter than all others. `own` are Shepherd's rules about its files,
    which are not listed. Mode `auto` counts as `ask` until `has_sandbox` is set, after a sandbox
    was tested.
    """

    def __init__(
        self,
        cwd: Path,
        mode: ApproveMode = ApproveMode.ASK,
        *,
        user: Iterable[Rule] = (),
        project: Iterable[Rule] = (),
        store: PermissionStore | None = None,
        own: Iterable[Rule] = (),
    ) -> None:
        self.cwd = cwd.resolve()
        self._mode = mode
        self._mode_before_plan = ApproveMode.ASK
        # whether commands can run in a tested sandbox, and whether one that does is asked about
        self.has_sandbox = False
        self.has_layer = False  # whether a layer works here, for the mode `review`
        self.is_in_layer = False  # a copy for a sub-agent, which has a layer of its own
        self.is_contained = False
        self._store = store
        self._repositories = RepositoryGuard(self.cwd)
        stored = store.load() if store else []
        self.uses = RuleUses(store.path.with_name("permissions-used.json") if store else None)
        self._settings = [*user]
        # the rules by trust; `_by_rule` and `_secret_rule` say how they weigh
        at_home = Path("~").expanduser().resolve().is_relative_to(self.cwd)
        self.awaits_first = at_home  # no mode answers before the user has approved a first change
        self._defaults = match.RuleLayer(defaults.default_rules(), self.cwd)
        self._edits_in_layer = match.RuleLayer(defaults.edits_rules()[:2], self.cwd)
        home_rules = defaults.home_rules() if at_home else []
        self._edits = match.RuleLayer([*defaults.edits_rules(), *home_rules], self.cwd)
        self._own = match.RuleLayer([*own, *self._settings, *stored], self.cwd)
        self._protected = match.RuleLayer(defaults.protected_rules(), self.cwd)
        self._project = match.RuleLayer(project, self.cwd)

    @property
    def mode(self) -> ApproveMode:
        """The mode; after the mode `plan`, `end_plan` restores the one before it."""
        return self._mode

    @mode.setter
    def mode(self, mode: ApproveMode) -> None:
        if mode is ApproveMode.PLAN and self._mode is not mode:
            self._mode_before_plan = self._mode
        self._mode = mode

    def end_plan(self, *, edits: bool) -> None:
        """Restore the mode before `plan`; with `edits`, that mode instead."""
        if self._mode is ApproveMode.PLAN:
            self._mode = ApproveMode.EDITS if edits else self._mode_before_plan

    def rules(self) -> list[Rule]:
        """All rules in force, in rising order of weight; the project's rules come last."""
        edits = self._edits.rules if self._allows_edits else []
        weighty = [*self._own.rules, *self._protected.rules, *self._project.rules]
        return [*self._defaults.rules, *edits, *weighty]

    def add(self, rule: Rule) -> None:
        """Add a rule of the user; a rule with lifetime `always` is also stored.

        Raises OSError or ConfigError if it can't be stored; it then holds for this session.
        """
        self._own.add(rule)
        if rule.lifetime is Lifetime.ALWAYS and self._store is not None:
            self._store.add(rule)

    def remove(self, rule: Rule) -> None:
        """Remove a rule of this session or of the store; raises OSError or ConfigError."""
        if self._store is not None:
            self._store.remove(rule)
        self._own = match.RuleLayer([r for r in self._own.rules if r != rule], self.cwd)

    def removable(self) -> dict[Rule, str]:
        """The rules that the user has added by answers, each with its source.

        Raises ConfigError if the store is broken.
        """
        stored = self._store.dated() if self._store is not None else {}
        rules = {r: f"kept since {day}" if day else "kept" for r, day in stored.items()}
        session = [r for r in self._own.rules if r.lifetime is Lifetime.SESSION]
        return rules | dict.fromkeys(session, "until this session ends")

    def sources(self) -> list[tuple[Rule, str]]:
        """All rules in force that the user or the project has set, each with its source.

        Those that `removable` has come first, in its order. Raises ConfigError.
        """
        added = self.removable()
        settings = [(rule, "settings") for rule in self._settings]
        project = [(rule, "the project's .shepherd.toml") for rule in self._project.rules]
        return [*added.items(), *settings, *project]

    def note_use(self, verdict: Verdict) -> None:
        """Count a call for the rules of the user and the project that decided on it."""
        for rule in verdict.rules or (verdict.rule,):
            if rule and rule.decision is verdict.decision and self._is_explicit(rule):
                self.uses.note(rule)

    def end_session(self) -> None:
        """Remove the rules with the lifetime of a session."""
        lasting = [rule for rule in self._own.rules if rule.lifetime is not Lifetime.SESSION]
        self._own = match.RuleLayer(lasting, self.cwd)

    def contained(self, *, in_layer: bool = False) -> "PermissionPolicy":
        """The same rules for a command that runs in the sandbox.

        In mode `auto` the defaults do not ask about it, because its effects stay in the sandbox.
        In mode `plan` they don't either, because nothing of it is kept. With `in_layer` they don't
        in any mode, because what it has changed is asked about.
        Rules of the user and of the project still ask and deny. They also apply to files that a
        command line only mentions.
        """
        policy = copy(self)
        is_auto = self.mode is ApproveMode.AUTO and self._allows_edits
        policy.is_contained = is_auto or in_layer or self.mode is ApproveMode.PLAN
        return policy

    def would_allow(self, tool: str, accesses: Sequence[Access], rules: Sequence[Rule]) -> bool:
        """Whether the call would run without approval if `rules` were added."""
        own = self._own.extended(rules)
        verdicts = (self._decided(tool, access, own) for access in accesses)
        return all(verdict.decision is Decision.ALLOW for verdict in verdicts)

    def decide(self, tool: str, accesses: Sequence[Access]) -> Verdict:
        """The strictest verdict over all accesses of a call; among equals, one on a repository."""
        verdicts = [(self.decide_one(tool, a), a.kind is AccessKind.REPOSITORY) for a in accesses]
        verdict, _is_of_repository = max(
            verdicts,
            # the verdict on a repository has the doubt that `accept` needs
            key=lambda pair: (pair[0].decision.strictness, pair[1]),
            default=(Verdict(Decision.ALLOW), False),
        )
        rules = [v.rule for v, _ in verdicts if v.rule and v.decision is verdict.decision]
        verdict = structs.replace(verdict, rules=tuple(dict.fromkeys(rules)))
        if verdict.decision is Decision.DENY:
            return verdict
        return self._linked(tool, accesses, verdict)

    def decide_effect(
        self, tool: str, changes: Sequence[Access], *, is_approved: bool
    ) -> tuple[Verdict, list[Access]]:
        """The strictest verdict on what a command has changed, and the changes that it is about.

        What a line did that was approved is only decided on by rules of the user and the project,
        and so is a deletion that loses nothing. Who may write a file may also change it so.
        """
        strictest, about = Verdict(Decision.ALLOW), list[Access]()
        for change in changes:
            verdict = self.decide_one(tool, change)
            is_clear = is_approved or (isinstance(change, EffectAccess) and not change.loses)
            if not self._is_explicit(verdict.rule) and (is_clear or self._may_write(tool, change)):
                continue
            if verdict.decision.strictness > strictest.decision.strictness:
                strictest, about = verdict, []
            if verdict.decision is strictest.decision:
                about.append(change)
        return strictest, about

    def _may_write(self, tool: str, change: Access) -> bool:
        """Whether the user's last rule about writing allows what is changed."""
        path = Access(AccessKind.WRITE, change.target.partition(" ")[2])
        rule = self._own.last(tool, path)
        return rule is not None and rule.decision is Decision.ALLOW

    def is_bytecode(self, change: Access) -> bool:
        """Whether a change is about Python's bytecode, which is not kept without approval."""
        return match.pattern_matches(defaults.BYTECODE, change, self.cwd)

    def decide_one(self, tool: str, access: Access) -> Verdict:
        """The verdict on one access, the mode included."""
        return self._decided(tool, access, self._own)

    def accept(self, verdict: Verdict, accesses: Sequence[Access]) -> bool:
        """Record that the user approved a verdict; its repositories are trusted from now on.

        False if such a repository has changed since the request.
        """
        answers = self.mode in (ApproveMode.EDITS, ApproveMode.AUTO)
        if answers and not _CHANGES.isdisjoint(access.kind for access in accesses):
            self.awaits_first = False
        doubt = verdict.doubt  # None: the verdict was not on a repository
        places = [Path(a.target) for a in accesses if a.kind is AccessKind.REPOSITORY]
        return doubt is None or all(self._repositories.accept(place, doubt) for place in places)

    def denies(self, tool: str, access: Access) -> bool:
        """Whether a rule denies the access, regardless of approvals."""
        return self._ruled(tool, access, self._own).decision is Decision.DENY

    @property
    def reviews(self) -> bool:
        """Whether calls work in one layer, and all changes are asked about at its end."""
        return self.is_in_layer or (self.mode is ApproveMode.REVIEW and self.has_layer)

    def in_layer(self) -> "PermissionPolicy":
        """The same rules for the calls of a sub-agent, which work in a layer of their own."""
        policy = copy(self)
        policy.is_in_layer = True
        return policy

    @property
    def _allows_edits(self) -> bool:
        """Whether the mode lets tools change files in the working directory unasked."""
        is_auto = self.mode is ApproveMode.AUTO and self.has_sandbox
        return (self.mode is ApproveMode.EDITS or is_auto) and not self.awaits_first

    def _with_mode(self, access: Access, verdict: Verdict) -> Verdict:
        """The verdict, where the mode or a box answers instead of the user."""
        if verdict.decision is not Decision.ASK:  # a rule has decided: no mode changes that
            return verdict
        if self.mode is ApproveMode.ALL and access.kind not in _ALWAYS_ASK:
            return Verdict(Decision.ALLOW, verdict.rule)
        if self._contains(access, verdict):
            return Verdict(Decision.ALLOW, verdict.rule)
        if self.mode is ApproveMode.NONE:
            return Verdict(Decision.DENY, verdict.rule, note="--approve none")
        return verdict

    def _in_plan(self, tool: str, access: Access, verdict: Verdict) -> Verdict:
        """The verdict in the mode `plan`, which no rule can loosen."""
        if self.mode is not ApproveMode.PLAN:
            return verdict
        decision = plan_decision(tool, access, contained=self.is_contained)
        if decision.strictness <= verdict.decision.strictness:  # the rules are as strict
            return verdict
        return Verdict(decision, note=PLAN_MODE)

    def _contains(self, access: Access, verdict: Verdict) -> bool:
        """Whether the box makes a question needless that only the defaults ask."""
        return (
            self.is_contained
            and access.kind in _HELD_BY_SANDBOX
            and not self._is_explicit(verdict.rule)
        )

    def _is_explicit(self, rule: Rule | None) -> bool:
        """Whether the rule comes from the user or the project."""
        return rule is not None and rule in (*self._own.rules, *self._project.rules)

    def _decided(self, tool: str, access: Access, own: match.RuleLayer) -> Verdict:
        """The verdict of rules and mode, stricter for private keys and new repositories."""
        verdict = self._with_mode(access, self._ruled(tool, access, own))
        verdict = self._in_plan(tool, access, verdict)
        if (
            verdict.decision is not Decision.ALLOW
            or self.mode is ApproveMode.ALL
            or _names_target(own.last(tool, access))  # the user knows what this file is
        ):
            return verdict
        decision = Decision.DENY if self.mode is ApproveMode.NONE else Decision.ASK
        if access.kind is AccessKind.READ and content.is_key_file(Path(access.target)):
            return Verdict(decision, note=f"a private key: {one_line(access.target)}")
        if access.kind is not AccessKind.WRITE:
            return verdict
        is_held = self.is_contained or self.reviews  # the box, or a question at the end
        why = git_reason(Path(access.target), self.cwd, is_held=is_held)
        return Verdict(decision, note=why) if why else verdict

    def _ruled(self, tool: str, access: Access, own: match.RuleLayer) -> Verdict:
        """The verdict of the rules, in every mode."""
        if access.kind is AccessKind.NONE:
            return Verdict(Decision.ALLOW)
        if access.kind is AccessKind.HOOK:
            return Verdict(Decision.ASK, note=f"the hook {one_line(access.target)}")
        if access.kind is AccessKind.PLAN:  # outside of the mode, there is nothing to accept
            is_plan = self.mode is ApproveMode.PLAN
            return Verdict(Decision.ASK if is_plan else Decision.ALLOW)
        if access.kind is AccessKind.REPOSITORY:
            doubt = self._repositories.doubt(Path(access.target))
            decision = Decision.ASK if doubt.text else Decision.ALLOW
            return Verdict(decision, note=doubt.text, doubt=doubt)
        verdict = self._by_rule(tool, access, own)
        if access.claim is Claim.MENTION and verdict.decision is Decision.ASK:
            # the command line itself is asked about, too, unless it runs in the sandbox
            counts = self.is_contained and self._is_explicit(verdict.rule)
            return verdict if counts else Verdict(Decision.ALLOW)
        if access.claim is Claim.OPAQUE and verdict.decision is Decision.ALLOW:
            return Verdict(Decision.ASK, note="the command can't be read in full")
        if access.claim is Claim.HELD and verdict.decision is Decision.ALLOW:
            return Verdict(Decision.ASK, note="what the command runs or names may be another then")
        return verdict

    def _by_rule(self, tool: str, access: Access, own: match.RuleLayer) -> Verdict:
        """The verdict of the last rule that matches, unless secrets or the project are stricter."""
        user_rule = own.last(tool, access)
        if user_rule is not None and _is_session_of_edits(user_rule):  # as in mode `edits`
            user_rule = self._edits.last(tool, access) or user_rule
        secret_rule = self._secret_rule(tool, access)
        if secret_rule is not None and not _names_target(user_rule):
            return Verdict(Decision.DENY, secret_rule)
        rule = user_rule or self._built_in(tool, access)
        verdict = Verdict(rule.decision if rule else Decision.ASK, rule)
        project_rule = self._project.last(tool, access)
        # an equal rule of the project counts too: the sandbox overrules what the defaults ask
        if project_rule and project_rule.decision.strictness >= verdict.decision.strictness:
            return Verdict(project_rule.decision, project_rule)
        return verdict

    def _linked(self, tool: str, accesses: Sequence[Access], verdict: Verdict) -> Verdict:
        """The verdict, unless a file of the call has another name under which it is denied."""
        names = links.HardLinks(self.cwd, partial(self.denies, tool))
        for access in accesses:
            status = links.file_status(access)
            if status is None:  # it names no existing file
                continue
            if name := names.denied_name(status, access.kind):
                return Verdict(Decision.DENY, note=f"the file is also {one_line(name)}")
            if verdict.decision is Decision.ALLOW and names.may_be_incomplete(status):
                where = one_line(access.target)
                note = f"{where} has further names (hard links), too many files to look for them"
                verdict = self._with_mode(access, Verdict(Decision.ASK, note=note))
        return verdict

    def _secret_rule(self, tool: str, access: Access) -> Rule | None:
        """The rule that marks the target as a secret, or as a copy of one."""
        rule = self._protected.last(tool, access)
        has_copies = access.kind in (AccessKind.READ, AccessKind.WRITE)
        if rule is not None or not has_copies:  # a rule that allows names a public file
            return rule if rule and rule.decision is Decision.DENY else None
        for name in defaults.original_names(access.target):
            rule = self._protected.last(tool, structs.replace(access, target=name))
            if rule and rule.decision is Decision.DENY:
                return rule
        return None

    def _built_in(self, tool: str, access: Access) -> Rule | None:
        """The last matching rule of Shepherd's own; those of the mode weigh more than defaults."""
        edits = self._edits.last(tool, access) if self._allows_edits else None
        if self.reviews and access.kind is AccessKind.WRITE:  # the question comes at the end
            edits = self._edits_in_layer.last(tool, access)
        return edits or self._defaults.last(tool, access)


def _is_session_of_edits(rule: Rule) -> bool:
    """Whether a user said yes to all edits for this session."""
    return rule.lifetime is Lifetime.SESSION and rule.pattern == "{cwd}/**"


def _names_target(rule: Rule | None) -> bool:
    """Whether a rule allows a target by name and not only by a wildcard such as `**`."""
    if rule is None or rule.decision is not Decision.ALLOW:
        return False
    last_name = rule.pattern.rsplit("/", 1)[-1]
    return any(character.isalnum() for character in last_name)


def own_output(spill_dir: Path) -> Rule:
    """The rule that allows reading the files with long results of tools."""
    return Rule("read", f"{escape_glob(str(spill_dir.resolve()))}/**", Decision.ALLOW)


PLAN_MODE = "plan mode allows no changes; present the plan first, and the user decides"

_CHANGES_NOTHING = frozenset(
    {AccessKind.READ, AccessKind.ENVIRONMENT, AccessKind.REPOSITORY}
    | {AccessKind.HOOK, AccessKind.PLAN, AccessKind.NONE}
)


def plan_decision(tool: str, access: Access, *, contained: bool) -> Decision:
    """The loosest decision on an access in plan mode; kinds that are not listed are denied.

    `contained` means that the call runs in a sandbox that keeps no change, without network.
    """
    match access.kind:
        case kind if kind in _CHANGES_NOTHING:
            return Decision.ALLOW
        case AccessKind.SHELL:
            # wildcards are permitted for commands that are known to read only
            return Decision.ALLOW if contained or access.wildcards else Decision.DENY
        case AccessKind.WRITE if contained:
            return Decision.ALLOW  # the sandbox refuses it, or nothing of it is kept
        case AccessKind.NETWORK if TRAITS.get(tool, Traits()).connects_in_plan:
            return Decision.ALLOW
        case AccessKind.TOOL | AccessKind.MCP:
            return Decision.ASK
        case _:
            return Decision.DENY
