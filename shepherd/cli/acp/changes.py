"""Around each call: shows its change, and protects what the editor has not saved."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from acp import RequestError
from acp.interfaces import Client
from pydantic import ValidationError

from shepherd.cli.acp.tool_calls import diff_content
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.errors import ToolError
from shepherd.tools.base import AccessKind, Claim, FileChange, ToolResult
from shepherd.tools.call import PreparedCall

ANSWER_SECONDS = 5.0
"""The time in which an editor must say what it has open; afterwards the saved file counts."""
MAX_COMPARED_BYTES = 8 << 20

UNSAVED_WRITE = (
    "{path} has unsaved changes in the editor, which this call would overwrite; ask the user to "
    "save or discard them first"
)
UNSAVED_READ = "\n[the editor has unsaved changes in this file; this is the saved text]"
_READERS = frozenset({"read_file"})


@dataclass(slots=True)
class EditorStep:
    """The step of a session's calls; see `CallStep`. `reads` tells whether the editor has files."""

    client: Client
    updates: SessionUpdates
    reads: bool

    async def before(self, prepared: PreparedCall) -> None:
        """Show the change; refuses a call that would overwrite unsaved changes."""
        change = await _change(prepared)
        if self.reads:
            for path in _targets(prepared, AccessKind.WRITE):
                if await self._is_unsaved(path):
                    raise ToolError(UNSAVED_WRITE.format(path=path))
        if not self.updates.shows(prepared.call):
            return
        diff = diff_content(change) if change is not None else None
        self.updates.call_runs(prepared.call, [] if diff is None else [diff])

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result, with a note if the editor shows other text than the model reads."""
        if not (self.reads and result.ok and prepared.tool.name in _READERS):
            return result
        for path in _targets(prepared, AccessKind.READ):
            if await self._is_unsaved(path):
                return replace(result, content=result.content + UNSAVED_READ)
        return result

    async def _is_unsaved(self, path: Path) -> bool:
        """Whether the editor shows other text than the file has."""
        saved = await asyncio.to_thread(_saved_text, path)
        if saved is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self.client.read_text_file(
                    session_id=self.updates.session_id, path=str(path)
                )
        except (RequestError, ConnectionError, ValidationError, TimeoutError):
            return False  # the editor does not have the file
        return _comparable(answer.content) != _comparable(saved)


async def _change(prepared: PreparedCall) -> FileChange | None:
    try:
        return await asyncio.to_thread(prepared.tool.change, prepared.arguments, prepared.context)
    except (ToolError, OSError):  # the call itself reports it
        return None


def _targets(prepared: PreparedCall, kind: AccessKind) -> list[Path]:
    """The files that the call touches for certain; commands are not among its kinds."""
    if prepared.tool.starts_programs:
        return []
    return [
        Path(access.target)
        for access in prepared.accesses
        if access.kind is kind and access.claim is Claim.EXACT
    ]


def _saved_text(path: Path) -> str | None:
    """The text of a file, None if it is not a text that an editor can have open."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_COMPARED_BYTES:
            return None
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _comparable(text: str) -> str:
    """The text as far as editors keep it: not its line ends, its mark, or its last newline."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").rstrip("\n")
