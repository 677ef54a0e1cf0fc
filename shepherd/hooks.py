"""Hooks: commands of the user around the calls of tools."""

import asyncio
import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, ValidationError

from shepherd import errors, events, messages
from shepherd.config.acceptance import AcceptanceStore, Proposal
from shepherd.config.files import read_text
from shepherd.config.paths import project_hooks_file
from shepherd.config.sections import NO_HOOKS, Hook, HooksSection
from shepherd.json_text import to_json
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.consent import PreparedCall
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.program import Program, usual_variables
from shepherd.tools.shell.process import run_program
from shepherd.tools.text import one_line
from shepherd.tools.tool import ToolResult
from shepherd.validation import problems_of

DENY_CODE = 2
"""The exit code with which a hook denies; its reason is on standard error."""

MAX_OUTPUT = 65_536
MAX_NAME = 60


class HookError(errors.ShepherdError):
    """A hook has failed: it could not run, took too long, or answered nonsense."""


class Outcome(BaseModel):
    """The answer of a hook; without a decision the hook has no objection."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision: Decision | None = None
    reason: str = ""
    context: str = ""


class HookCommand(Struct, frozen=True):
    """A hook in the directory `cwd`."""

    hook: Hook
    cwd: Path

    @property
    def name(self) -> str:
        """The command, shortened, as hooks are named to users and models."""
        line = one_line(self.hook.command)
        return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"

    async def run(self, payload: messages.JsonObject) -> Outcome:
        """The hook's answer; raises HookError."""
        out, err = _Output(), _Output()
        with tempfile.TemporaryFile() as file:  # a pipe would block for a hook that reads nothing
            file.write(to_json(payload).encode("utf-8", "replace"))
            file.seek(0)
            argv = ["/bin/sh", "-c", self.hook.command]
            program = Program(argv, self.cwd, hook_environment(self.hook, os.environ), file)
            try:
                ended = await run_program(program, out.feed, err.feed, self.hook.timeout)
            except (OSError, errors.ToolError) as error:
                raise self._failure(f"it can't be run: {error}") from error
        if out.is_full or err.is_full:
            raise self._failure(f"its output is longer than {MAX_OUTPUT} bytes")
        if ended.timed_out:
            raise self._failure(f"it took longer than {self.hook.timeout:g} s")
        if ended.code == DENY_CODE:
            return Outcome(decision=Decision.DENY, reason=err.text or out.text)
        if ended.code != 0:
            raise self._failure(f"exit code {ended.code}. {err.text}".strip())
        return self._parsed(out.text)

    def _parsed(self, text: str) -> Outcome:
        """The outcome in a hook's output; a hook that prints nothing has no objection."""
        if not text:
            return Outcome()
        try:
            return Outcome.model_validate_json(text)
        except ValidationError as error:
            raise self._failure(
                "its output is not a JSON object with decision (allow, ask or deny), reason and "
                "context"
            ) from error

    def _failure(self, problem: str) -> HookError:
        """The error that names the hook and its problem."""
        return HookError(f"the hook `{self.name}` failed: {problem}")


class _Output(Struct):
    """The output of a hook up to the limit."""

    data: bytearray = field(default_factory=bytearray)
    is_full: bool = False

    def feed(self, data: bytes) -> bool:
        """Keep a part; False, which ends the hook, once there is too much."""
        self.data += data
        self.is_full = len(self.data) > MAX_OUTPUT
        return not self.is_full

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace").strip()


def hook_environment(hook: Hook, env: Mapping[str, str]) -> dict[str, str]:
    """The usual variables, and those that the hook names; any other one may be a secret."""
    named = {name: env[name] for name in hook.env if name in env}
    return {**usual_variables(env), **named}


MAX_CONTINUED = 3
"""How often the hooks may continue one turn."""

MAX_RESULT = 32_768
"""Characters of a result, or of an answer, that a hook gets."""


class Hooks(Struct):
    """Runs the hooks of `section` in `cwd`.

    `session` returns the id of the session, and `tell` shows a sentence to the user. It is the
    `CallStep` of the conversation's calls, a `Preface`, and a `TurnEnd`.
    """

    section: HooksSection
    cwd: Path
    tell: Callable[[str], None]
    session: Callable[[], str]
    _started_session: str | None = None  # the session whose start the hooks know
    # by the identity of the call: what `before` got for the model, until `after` adds it
    _contexts_by_call: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    async def session_start(self) -> str:
        """The context for the first prompt of a session; "" for later prompts."""
        if self._started_session == self.session():
            return ""
        self._started_session = self.session()
        outcomes = await self._outcomes(self.section.session_start, self._payload("session_start"))
        return "\n".join(outcome.context for outcome in outcomes if outcome.context)

    async def turn_end(self, answer: str, continued: int) -> str:
        """The text that continues the turn, "" for none."""
        if continued >= MAX_CONTINUED or not self.section.turn_end:
            return ""
        payload = self._payload("turn_end", answer=answer[:MAX_RESULT], continued=continued)
        texts: list[str] = []
        for outcome in await self._outcomes(self.section.turn_end, payload):
            # a hook that denies the end continues the turn with its reason
            reason = outcome.reason if outcome.decision is Decision.DENY else ""
            texts.append(outcome.context or reason)
        return "\n".join(filter(None, texts))

    async def before(self, prepared: PreparedCall) -> None:
        """Let the hooks decide on an allowed call; raises ToolError for a denial or a failure."""
        # a cancelled call has no `after`; Python may give its `id` to this call
        self._contexts_by_call.pop(id(prepared), None)
        for command in self._matching(self.section.before_tool, prepared):
            try:
                outcome = await command.run(self._call_payload("before_tool", prepared))
            except HookError as error:
                raise errors.ToolError(f"denied: {error}") from error
            if outcome.decision is Decision.DENY:
                raise errors.ToolError(f"denied by the hook `{command.name}`: {outcome.reason}")
            if outcome.decision is Decision.ASK:  # raises ToolError if the user denies it
                purpose = f"{outcome.reason}\n{await _described(prepared)}".strip()
                await prepared.context.authorize(Access(AccessKind.HOOK, command.name), purpose)
            if outcome.context:
                self._contexts_by_call.setdefault(id(prepared), []).append(outcome.context)

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result with the hooks' contexts, or an error if a hook holds it back."""
        texts = self._contexts_by_call.pop(id(prepared), [])
        payload = self._call_payload(
            "after_tool", prepared, ok=result.ok, result=result.content[:MAX_RESULT]
        )
        for command in self._matching(self.section.after_tool, prepared):
            try:
                outcome = await command.run(payload)
            except HookError as error:  # the call has run, so denying it would come too late
                prepared.context.on_event(events.Notice(str(error), events.Topic.WARNING))
                continue
            if outcome.decision is Decision.DENY:  # it keeps the result from the model
                held = f"Error: the hook `{command.name}` holds the result back: {outcome.reason}"
                return ToolResult(held, ok=False)
            if outcome.context:
                texts.append(outcome.context)
        if not texts:
            return result
        content = "\n".join([result.content, *(f"[hook: {text}]" for text in texts)])
        return ToolResult(content, result.ok, result.display, result.images, result.refusal)

    async def _outcomes(self, hooks: Sequence[Hook], payload: messages.JsonObject) -> list[Outcome]:
        """The outcomes of those hooks that work; the user reads about the others."""
        outcomes: list[Outcome] = []
        for hook in hooks:
            try:
                outcomes.append(await HookCommand(hook, self.cwd).run(payload))
            except HookError as error:
                self.tell(str(error))
        return outcomes

    def _matching(self, hooks: Sequence[Hook], prepared: PreparedCall) -> list[HookCommand]:
        """The hooks whose pattern fits the tool, or one kind of what the call touches."""
        names = {prepared.tool.name, *(access.kind.value for access in prepared.accesses)}
        return [
            HookCommand(hook, self.cwd)
            for hook in hooks
            if any(fnmatchcase(name, hook.match) for name in names)
        ]

    def _call_payload(
        self, event: str, prepared: PreparedCall, **more: object
    ) -> messages.JsonObject:
        """What a hook reads about a call, as docs/hooks.md describes it."""
        return self._payload(
            event,
            tool=prepared.tool.name,
            id=prepared.call.id,
            arguments=prepared.call.arguments,
            accesses=[access.to_json() for access in prepared.accesses],
            **more,
        )

    def _payload(self, event: str, **more: object) -> messages.JsonObject:
        """What a hook reads about each event, and `more`."""
        return {"event": event, "session": self.session(), "cwd": str(self.cwd), **more}


async def _described(prepared: PreparedCall) -> str:
    """The call as a user reads it before approving; its arguments if there is no better text."""
    try:
        text = await asyncio.to_thread(prepared.tool.preview, prepared.arguments, prepared.context)
    except errors.ToolError:
        text = ""
    return text or prepared.call.arguments_json


MAX_BYTES = 65_536
HOW_TO_ACCEPT = "`shepherd hooks list` shows them, and `shepherd hooks accept` lets them run"


class ProjectHooks(Struct, frozen=True):
    """The hooks in a project's file."""

    file: Path
    section: HooksSection

    @property
    def proposal(self) -> Proposal:
        """Everything that decides what runs."""
        content = {"file": str(self.file), **self.section.model_dump()}
        return Proposal("hooks", self.file.parent, content)


def load_project_hooks(cwd: Path) -> ProjectHooks | None:
    """The hooks of the project of `cwd`, accepted or not; None without a file.

    Raises ConfigError for a broken file.
    """
    file = project_hooks_file(cwd)
    if file is None:
        return None
    try:
        data = tomllib.loads(read_text(file, MAX_BYTES))
        return ProjectHooks(file.resolve(), HooksSection.model_validate(data))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise errors.ConfigError(f"{file}: not a file of hooks: {problems_of(error)}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise errors.ConfigError(f"{file}: not a file of hooks: {error}") from error


def accepted_hooks(cwd: Path, store: AcceptanceStore) -> tuple[HooksSection, str]:
    """The project's hooks that may run, and a sentence for the user if they may not."""
    try:
        project = load_project_hooks(cwd)
        if project is None or project.section == NO_HOOKS:
            return NO_HOOKS, ""
        if store.is_accepted(project.proposal):
            return project.section, ""
    except errors.ConfigError as error:
        return NO_HOOKS, f"The project's hooks do not run: {error}"
    return NO_HOOKS, f"The hooks in {project.file} do not run: {HOW_TO_ACCEPT}."


def joined(own: HooksSection, more: HooksSection) -> HooksSection:
    """All hooks of both, those of `own` first; a section has a list for each event."""
    names = HooksSection.model_fields
    return HooksSection(**{name: [*getattr(own, name), *getattr(more, name)] for name in names})


def description(section: HooksSection) -> str:
    """The hooks, a line each."""
    lines = [
        f"{event}: {hook.command}  (match {hook.match}, {hook.timeout:g} s{_variables(hook)})"
        for event in HooksSection.model_fields
        for hook in getattr(section, event)
    ]
    return "\n".join(lines)


def _variables(hook: Hook) -> str:
    """The variables that a hook gets, as a part of its description."""
    return f", gets {', '.join(hook.env)}" if hook.env else ""
