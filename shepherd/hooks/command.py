"""Runs one hook: JSON on its input, a decision on its output."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shepherd.config.sections import Hook
from shepherd.errors import ShepherdError, ToolError
from shepherd.json_text import to_json
from shepherd.messages import JsonObject
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.program import Program, usual_variables
from shepherd.tools.shell.process import run_program
from shepherd.tools.text import one_line

DENY_CODE = 2
"""The exit code with which a hook denies; its reason is on standard error."""

MAX_OUTPUT = 65_536
MAX_NAME = 60


class HookError(ShepherdError):
    """A hook has failed: it could not run, took too long, or answered nonsense."""


class Outcome(BaseModel):
    """The answer of a hook; without a decision the hook has no objection."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision: Decision | None = None
    reason: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class HookCommand:
    """A hook in the directory `cwd`."""

    hook: Hook
    cwd: Path

    @property
    def name(self) -> str:
        """The command, shortened, as hooks are named to users and models."""
        line = one_line(self.hook.command)
        return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"

    async def run(self, payload: JsonObject) -> Outcome:
        """The hook's answer; raises HookError."""
        out, err = _Output(), _Output()
        with tempfile.TemporaryFile() as file:
            file.write(to_json(payload).encode("utf-8", "replace"))
            file.seek(0)
            argv = ["/bin/sh", "-c", self.hook.command]
            program = Program(argv, self.cwd, hook_environment(self.hook, os.environ), file)
            try:
                ended = await run_program(program, out.feed, err.feed, self.hook.timeout)
            except (OSError, ToolError) as error:
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
        return HookError(f"the hook `{self.name}` failed: {problem}")


class _Output:
    """The output of a hook up to the limit."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.is_full = False

    def feed(self, data: bytes) -> bool:
        self._data += data
        self.is_full = len(self._data) > MAX_OUTPUT
        return not self.is_full

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace").strip()


def hook_environment(hook: Hook, env: Mapping[str, str]) -> dict[str, str]:
    """The usual variables, and those that the hook names; any other one may be a secret."""
    named = {name: env[name] for name in hook.env if name in env}
    return {**usual_variables(env), **named}
