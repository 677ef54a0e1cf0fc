"""The hooks of a conversation."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from shepherd.config.sections import Hook, HooksSection
from shepherd.errors import ToolError
from shepherd.events import Notice, Topic
from shepherd.hooks.command import HookCommand, HookError, Outcome
from shepherd.messages import JsonObject
from shepherd.tools.base import Access, AccessKind, ToolResult
from shepherd.tools.call import PreparedCall
from shepherd.tools.permissions.rules import Decision

MAX_CONTINUED = 3
"""How often the hooks may continue one turn."""

MAX_RESULT = 32_768
"""Characters of a result, or of an answer, that a hook gets."""


@dataclass(slots=True)
class Hooks:
    """Runs the hooks of `section` in `cwd`.

    `session` returns the id of the session, and `tell` shows a sentence to the user. It is the
    `CallStep` of the conversation's calls, a `Preface`, and a `TurnEnd`.
    """

    section: HooksSection
    cwd: Path
    tell: Callable[[str], None]
    session: Callable[[], str]
    _started: str | None = None
    _contexts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    async def session_start(self) -> str:
        """The context for the first prompt of a session; "" for later prompts."""
        if self._started == self.session():
            return ""
        self._started = self.session()
        outcomes = await self._all(self.section.session_start, self._payload("session_start"))
        return "\n".join(outcome.context for outcome in outcomes if outcome.context)

    async def turn_end(self, answer: str, continued: int) -> str:
        """The text that continues the turn, "" for none."""
        if continued >= MAX_CONTINUED or not self.section.turn_end:
            return ""
        payload = self._payload("turn_end", answer=answer[:MAX_RESULT], continued=continued)
        outcomes = await self._all(self.section.turn_end, payload)
        texts = [outcome.context or _denial(outcome) for outcome in outcomes]
        return "\n".join(text for text in texts if text)

    async def before(self, prepared: PreparedCall) -> None:
        """Let the hooks decide on an allowed call; raises ToolError for a denial or a failure."""
        self._contexts.pop(id(prepared), None)
        for command in self._matching(self.section.before_tool, prepared):
            try:
                outcome = await command.run(self._call("before_tool", prepared))
            except HookError as error:
                raise ToolError(f"denied: {error}") from error
            if outcome.decision is Decision.DENY:
                raise ToolError(f"denied by the hook `{command.name}`: {outcome.reason}")
            if outcome.decision is Decision.ASK:
                purpose = f"{outcome.reason}\n{await _described(prepared)}".strip()
                await prepared.context.authorize(Access(AccessKind.HOOK, command.name), purpose)
            if outcome.context:
                self._contexts.setdefault(id(prepared), []).append(outcome.context)

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result with the hooks' contexts, or an error if a hook holds it back."""
        texts = self._contexts.pop(id(prepared), [])
        payload = self._call(
            "after_tool", prepared, ok=result.ok, result=result.content[:MAX_RESULT]
        )
        for command in self._matching(self.section.after_tool, prepared):
            try:
                outcome = await command.run(payload)
            except HookError as error:
                prepared.context.on_event(Notice(str(error), Topic.WARNING))
                continue
            if outcome.decision is Decision.DENY:
                held = f"Error: the hook `{command.name}` holds the result back: {outcome.reason}"
                return ToolResult(held, ok=False)
            texts += [outcome.context] if outcome.context else []
        if not texts:
            return result
        content = "\n".join([result.content, *(f"[hook: {text}]" for text in texts)])
        return ToolResult(content, result.ok, result.display, result.images, result.refusal)

    async def _all(self, hooks: Sequence[Hook], payload: JsonObject) -> list[Outcome]:
        """The outcomes of those hooks that work; the user reads about the others."""
        outcomes: list[Outcome] = []
        for hook in hooks:
            try:
                outcomes.append(await HookCommand(hook, self.cwd).run(payload))
            except HookError as error:
                self.tell(str(error))
        return outcomes

    def _matching(self, hooks: Sequence[Hook], prepared: PreparedCall) -> list[HookCommand]:
        names = {prepared.tool.name, *(access.kind.value for access in prepared.accesses)}
        return [
            HookCommand(hook, self.cwd)
            for hook in hooks
            if any(fnmatchcase(name, hook.match) for name in names)
        ]

    def _call(self, event: str, prepared: PreparedCall, **more: object) -> JsonObject:
        accesses = [
            {"kind": access.kind.value, "target": access.target, "claim": access.claim.value}
            for access in prepared.accesses
        ]
        return self._payload(
            event,
            tool=prepared.tool.name,
            id=prepared.call.id,
            arguments=prepared.call.arguments,
            accesses=accesses,
            **more,
        )

    def _payload(self, event: str, **more: object) -> JsonObject:
        return {"event": event, "session": self.session(), "cwd": str(self.cwd), **more}


async def _described(prepared: PreparedCall) -> str:
    """The call as a user reads it before approving."""
    try:
        text = await asyncio.to_thread(prepared.tool.preview, prepared.arguments, prepared.context)
    except ToolError:
        text = ""
    return text or prepared.call.arguments_json


def _denial(outcome: Outcome) -> str:
    return outcome.reason if outcome.decision is Decision.DENY else ""
