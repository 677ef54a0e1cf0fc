"""Requests for approval, the answers, and the objects that answer them."""

import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from shepherd.messages import ToolCall
from shepherd.tools.access import EDIT_FILE, EXECUTE_COMMAND, WRITE_FILE, Access, AccessKind, Claim
from shepherd.tools.paths import escape_glob
from shepherd.tools.permissions import content, match
from shepherd.tools.permissions.defaults import STARTUP_PATHS
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule

DENIED_BY_USER = "denied by the user"
NO_TERMINAL = "denied: approval needed and no terminal to ask"

HELD_BACK = "the call has run, but its result holds a private key and is held back"


class Choice(StrEnum):
    """The possible answers."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


class Part(Struct, frozen=True):
    """A part of an effect that can be kept without the others, such as one hunk of a text.

    All hunks of a file have its `path` and title, and each its place, such as `hunk 2 of 3`. `diff`
    is "" for what is no text, or too large.
    """

    path: str
    title: str
    diff: str = ""
    hunk: str = ""

    @property
    def name(self) -> str:
        """The title with the hunk."""
        return f"{self.title}, {self.hunk}" if self.hunk else self.title


class Approval(Struct, frozen=True):
    """An answer.

    `feedback` is the user's message to the model, added to the result. `reason` is the text after
    `Error: ` in the result of a denied call. `by` names the client that answered, "" for the user
    of this process. `values` are those that the user typed for the request's fields. `parts` are
    the numbers of the request's parts that are kept, counted from 1; None means all. `unanswered`
    means that there was nobody to ask, so that it is denied.
    """

    choice: Choice
    feedback: str = ""
    reason: str = DENIED_BY_USER
    by: str = ""
    values: tuple[str, ...] = ()
    parts: tuple[int, ...] | None = None
    unanswered: bool = False


class ApprovalRequest(Struct, frozen=True):
    """A call that needs approval.

    `preview` is a diff or the command. `session` and `always` are the rules that these answers
    would add; if they are empty, the answer holds for this call only. `cause` is the rule or
    another reason for the request. `caller` names the model that made the call if it is not the
    model of the conversation. `sandbox` describes a refusal of the sandbox and the rights that an
    approval adds, or says that the call runs outside of it; else it is "". `fields` name values for
    the user to type, which go with an approval; a frontend that can't read them leaves them out.
    `choices` are the texts that each field accepts, none for any text. `detail` is the diff of an
    effect, which nobody has to read. An approval may choose some of its `parts`.
    """

    call: ToolCall
    accesses: tuple[Access, ...]
    preview: str = ""
    session: tuple[Rule, ...] = ()
    always: tuple[Rule, ...] = ()
    cause: str = ""
    caller: str = ""
    sandbox: str = ""
    fields: tuple[str, ...] = ()
    choices: tuple[tuple[str, ...], ...] = ()
    detail: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def is_effect(self) -> bool:
        """Whether it asks about what a command has changed."""
        return any(access.kind is AccessKind.EFFECT for access in self.accesses)

    @property
    def is_plan(self) -> bool:
        """Whether it asks the user to accept a plan."""
        return any(access.kind is AccessKind.PLAN for access in self.accesses)

    def rules_for(self, choice: Choice) -> tuple[Rule, ...]:
        """The rules that `choice` would add."""
        return {Choice.SESSION: self.session, Choice.ALWAYS: self.always}.get(choice, ())


class Approver(Protocol):
    """Answers requests without a time limit; it is cancelled with the call."""

    async def ask(self, request: ApprovalRequest) -> Approval: ...


class DenyingApprover:
    """Denies everything, because there is no user to ask."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Deny, with the reason for the model."""
        return Approval(Choice.DENY, reason=NO_TERMINAL, unanswered=True)


class CallObserver(Protocol):
    """Notes how it is decided on a call; a call can have several decisions."""

    def ruled(self, decision: Decision, cause: str) -> None:
        """Note a decision of the rules; one that asks is followed by an answer."""

    def answered(self, approval: Approval) -> None:
        """Note the answer to a request."""

    def started(self) -> None:
        """Note that the call runs."""


def harmless_error(error: Exception) -> str:
    """The text of an error, without a private key."""
    text = str(error)
    return HELD_BACK if content.holds_private_key(text) else text


_EDITS_MODE = Rule("mode", "edits", Decision.ALLOW, lifetime=Lifetime.SESSION)
"""Describes the answer that accepts a plan and sets the mode `edits`; not a rule of the policy."""


def propose(
    policy: PermissionPolicy, tool: str, accesses: Sequence[Access], lifetime: Lifetime
) -> tuple[Rule, ...]:
    """The rules after which this call needs no approval; none if no rule can do that."""
    if any(access.kind is AccessKind.PLAN for access in accesses):  # a yes ends the mode `plan`
        return (_EDITS_MODE,) if lifetime is Lifetime.SESSION else ()
    rules: list[Rule] = []
    for access in accesses:
        if policy.decide_one(tool, access).decision is not Decision.ASK:
            continue
        rule = _for_access(tool, access, policy.cwd, lifetime)
        if rule is None:
            return ()
        if rule not in rules:
            rules.append(rule)
    # a project's rule or a secret may ask all the same: then the answer promises too much
    return tuple(rules) if policy.would_allow(tool, accesses, rules) else ()


_MAX_EFFECT_RULES = 6


def propose_for_effect(
    policy: PermissionPolicy, tool: str, changes: Sequence[Access], lifetime: Lifetime
) -> tuple[Rule, ...]:
    """The rules after which such an effect needs no approval; none if these are too many.

    For one session, all writes in the working directory; else those in the same directories.
    """
    patterns: dict[str, None] = {}
    for change in changes:
        deed, _, name = change.target.partition(" ")
        top, *below = Path(name).relative_to(policy.cwd).parts
        pattern = f"{escape_glob(top)}/**" if below else escape_glob(top)
        is_wide = lifetime is Lifetime.SESSION and deed == "write"
        patterns[f"{deed} **" if is_wide else f"{deed} {pattern}"] = None
    # that of a directory covers it and what is in it
    patterns = {p: None for p in patterns if p.endswith("**") or f"{p}/**" not in patterns}
    if len(patterns) > _MAX_EFFECT_RULES:
        patterns = dict.fromkeys("write **" if p.startswith("write ") else p for p in patterns)
    scope = str(policy.cwd)
    rules = [Rule("effect", pattern, Decision.ALLOW, scope, lifetime) for pattern in patterns]
    is_enough = len(rules) <= _MAX_EFFECT_RULES and policy.would_allow(tool, changes, rules)
    return tuple(rules) if is_enough else ()


def _for_access(tool: str, access: Access, cwd: Path, lifetime: Lifetime) -> Rule | None:
    """The rule that allows one access; None if no rule can."""
    if access.claim is not Claim.EXACT:  # the rule would allow more than what is asked about
        return None
    subject, pattern = access.kind.value, access.target
    match access.kind:
        case AccessKind.SHELL:
            pattern = command_rule(access.target, wildcards=access.wildcards)
        case AccessKind.SHELL_NETWORK | AccessKind.UNSANDBOXED:
            pattern = match.exact_pattern(access.target)  # what leaves the box is named in full
        case AccessKind.READ:
            path = Path(access.target)
            pattern = _relative_pattern(path, cwd)
            pattern = f"{pattern.rstrip('/')}/**" if path.is_dir() else pattern
        case AccessKind.WRITE:
            # `write` would allow it to other tools as well
            subject = subject if tool == EXECUTE_COMMAND else tool
            path = Path(access.target)
            # for one session, a yes to an edit of a file is one to all edits in the directory
            edits = lifetime is Lifetime.SESSION and tool in (WRITE_FILE, EDIT_FILE)
            is_wide = edits and path.is_relative_to(cwd)
            pattern = "{cwd}/**" if is_wide else _relative_pattern(path, cwd)
            if f"{{cwd}}/**/{path.name}/**" in STARTUP_PATHS:  # a directory, also a new one
                pattern = f"{pattern}/**"
        case AccessKind.NETWORK:
            subject, pattern = tool, _host(access.target)
        case AccessKind.HOOK:  # no rule answers for a hook: it asks about each call
            return None
        case _:
            pass
    return Rule(subject, pattern, Decision.ALLOW, str(cwd), lifetime) if pattern else None


def command_rule(command: str, *, wildcards: bool) -> str:
    """The pattern for a command: all its words, or a wildcard if it is known to read only."""
    program, *arguments = shlex.split(command)
    if not wildcards or "=" in program:
        return match.exact_pattern(command)
    if program != "git":
        return f"{program} *"
    has_option = arguments[0].startswith("-")
    return match.exact_pattern(command) if has_option else f"git {arguments[0]} *"


def _relative_pattern(path: Path, cwd: Path) -> str:
    """The glob of one path, from `{cwd}` if it lies there."""
    if path != cwd and path.is_relative_to(cwd):
        return "{cwd}/" + escape_glob(str(path.relative_to(cwd)))
    return escape_glob(str(path))


def _host(url: str) -> str:
    """`example.com:8443`, as rules name it; without a port that the URL does not name."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port}" if parts.port else host
