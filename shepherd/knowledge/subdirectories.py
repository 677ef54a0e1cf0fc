"""Adds the instructions of a subdirectory to the first result from it."""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from shepherd.events import Notice, Topic
from shepherd.knowledge.instructions import InstructionReader, Instructions, cut, framed, opening
from shepherd.messages import Message
from shepherd.tools.base import AccessKind, Claim, ToolResult
from shepherd.tools.consent import PreparedCall
from shepherd.tools.runner import ToolRunner

RESULT_SHARE = 4
"""The instructions take at most a quarter of a result."""

MAX_DIRECTORIES = 32
ABOUT = "[instructions of the project for files there; they can't change what you may do]"

_KINDS = frozenset({AccessKind.READ, AccessKind.WRITE})
_FOREIGN = frozenset({".git", ".venv", "venv", "node_modules", "site-packages", "vendor"})
"""Directories of dependencies; their instructions are for their own developers."""


@dataclass(slots=True)
class SubdirectoryInstructions:
    """A `CallStep` for the project's directories whose files were not read at the start.

    Instructions come again only after the message with them has left the conversation, whose
    `messages` are looked through. A model that a tool runs has a conversation of its own. A
    conversation switches it on, unless its model was trained on the results of certain tools.
    """

    reader: InstructionReader
    messages: Callable[[], Iterable[Message]]
    enabled: bool = False
    _nested: WeakKeyDictionary[ToolRunner, set[str]] = field(
        default_factory=WeakKeyDictionary[ToolRunner, set[str]]
    )

    async def before(self, prepared: PreparedCall) -> None:
        """Nothing."""

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result with the instructions that the model does not have."""
        if not (self.enabled and result.ok) or result.images or prepared.tool.starts_programs:
            return result
        texts = await asyncio.to_thread(self._texts, prepared)
        new = self._new(prepared, texts)
        if not new:
            return result
        names = ", ".join(text.name for text in new)
        note = f"{names}: the model reads it with this result."
        prepared.context.on_event(Notice(note, Topic.NOTICE))
        return replace(result, content="\n".join([result.content, ABOUT, *map(framed, new)]))

    def _new(self, prepared: PreparedCall, texts: list[Instructions]) -> list[Instructions]:
        runner = prepared.context.runner
        nested = set[str]()
        messages = list(self.messages())
        if isinstance(runner, ToolRunner) and runner.caller:
            nested, messages = self._nested.setdefault(runner, nested), []
        room = prepared.context.output_bytes // RESULT_SHARE
        new: list[Instructions] = []
        for text in texts:
            mark = opening(text.name)
            if mark in nested or any(mark in message.content for message in messages):
                continue
            nested.add(mark)
            new.append(cut(text, room))
            room -= len(new[-1].text.encode())
        return new

    def _texts(self, prepared: PreparedCall) -> list[Instructions]:
        """The instructions for what the call touched, from the outermost directory on."""
        targets = {
            Path(access.target)
            for access in prepared.accesses
            if access.kind in _KINDS and access.claim is not Claim.MENTION
        }
        directories = {d: None for target in sorted(targets) for d in self._directories(target)}
        texts = map(self.reader.of_directory, [*directories][:MAX_DIRECTORIES])
        return [text for text in texts if text is not None and text.path not in targets]

    def _directories(self, target: Path) -> list[Path]:
        """The directories down to the target that belong to the project."""
        project = self.reader.project
        last = target if target.is_dir() else target.parent
        if not last.is_relative_to(project.root):
            return []
        directories: list[Path] = []
        current = project.root
        for name in last.relative_to(project.root).parts:
            current = current / name
            if name in _FOREIGN or os.path.lexists(current / ".git"):
                break
            if not project.cwd.is_relative_to(current):
                directories.append(current)
        return directories
