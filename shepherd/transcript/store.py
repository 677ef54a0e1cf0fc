"""Finds, lists and deletes saved conversations."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shepherd.errors import SessionError
from shepherd.messages import Role
from shepherd.transcript.journal import Transcript
from shepherd.transcript.records import Header, SavedSession, now, parse_first_line, parse_session
from shepherd.transcript.storage import SessionFiles, SessionStorage


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of `shepherd sessions list`; `title` is the user's first message."""

    id: str
    cwd: str
    model: str
    updated: datetime
    messages: int
    title: str


def new_id(started: datetime) -> str:
    """A new id for a session that starts at `started` (in UTC); ids sort by their times."""
    part = started.microsecond * 0x1000 // 1_000_000
    return f"{started:%Y%m%d-%H%M%S}-{part:03x}{secrets.randbelow(0x1000):03x}"


class SessionStore:
    """The sessions in a storage: the files of a directory, which need not exist, or another one."""

    def __init__(self, storage: SessionStorage | Path) -> None:
        self.storage = SessionFiles(storage) if isinstance(storage, Path) else storage

    def create(
        self, cwd: Path, model: str, system_message: str, on_failure: Callable[[str], None]
    ) -> Transcript:
        """The transcript of a new session; see `Transcript` for `on_failure`."""
        header = Header(new_id(datetime.now(UTC)), str(cwd), model, system_message, now())
        return Transcript(self.storage, header, on_failure)

    def reopen(self, id: str, on_failure: Callable[[str], None]) -> tuple[Transcript, SavedSession]:
        """Continue a session; `id` as for `find`."""
        return Transcript.reopen(self.storage, self.find(id), on_failure)

    def read(self, id: str) -> SavedSession:
        """The current state of a session, without locking it; `id` as for `find`."""
        return self._read(self.find(id))

    def find(self, id: str) -> str:
        """The id of the one session whose id starts with `id`; raises SessionError."""
        result = [full for full in self.storage.ids() if full.startswith(id)]
        if id in result or len(result) == 1:
            return id if id in result else result[0]
        if result:
            raise SessionError(f"{id} is the start of {len(result)} sessions; give more of it.")
        raise SessionError(f"No session {id}; `shepherd sessions list` shows all.")

    def latest(self, cwd: Path) -> str:
        """The id of the newest session of `cwd` with a message; raises SessionError if none."""
        newest = next((i for i in self.session_ids(cwd) if not self._is_empty(i)), None)
        if newest is None:
            raise SessionError(f"No saved session of {cwd}; `shepherd sessions list` shows all.")
        return newest

    def session_ids(self, cwd: Path) -> Iterator[str]:
        """The ids of the sessions of `cwd`, the newest first, without those that are damaged."""
        for session_id, line in self.storage.headers():
            try:
                if parse_first_line(session_id, line).cwd == str(cwd):
                    yield session_id
            except SessionError:
                continue  # `shepherd sessions list` shows it, with its error

    def summary(self, id: str) -> SessionSummary:
        """The summary of one session; `id` as for `find`."""
        session_id = self.find(id)
        return self._summary(session_id, self._read(session_id))

    def newest(self, cwd: Path, limit: int) -> list[SessionSummary]:
        """The summaries of at most `limit` sessions of `cwd` with a message, the newest first."""
        summaries: list[SessionSummary] = []
        for session_id in self.session_ids(cwd):
            if len(summaries) >= limit:
                break
            with suppress(SessionError):  # `shepherd sessions list` shows it, with its error
                saved = self._read(session_id)
                if saved.messages:
                    summaries.append(self._summary(session_id, saved))
        return summaries

    def summaries(self) -> tuple[list[SessionSummary], list[str]]:
        """All sessions with a message, the newest first, and a sentence per unreadable one."""
        summaries: list[SessionSummary] = []
        problems: list[str] = []
        for session_id in self.storage.ids():
            try:
                saved = self._read(session_id)
            except SessionError as error:
                problems.append(str(error))
                continue
            if saved.messages:
                summaries.append(self._summary(session_id, saved))
        return summaries, problems

    def delete(self, id: str) -> str:
        """Delete a session and return its full id; raises SessionError if it is open elsewhere."""
        session_id = self.find(id)
        self.storage.delete(session_id)
        return session_id

    def _read(self, id: str) -> SavedSession:
        return parse_session(self.storage.name(id), self.storage.read(id))

    def _is_empty(self, id: str) -> bool:
        """Whether it has no message; False if unreadable, and opening it then reports the error."""
        try:
            return not self._read(id).messages
        except SessionError:
            return False

    def _summary(self, id: str, saved: SavedSession) -> SessionSummary:
        users = (m.content or m.plain_text for m in saved.messages if m.role is Role.USER)
        return SessionSummary(
            id=saved.id,
            cwd=saved.header.cwd,
            model=saved.model,
            updated=datetime.fromtimestamp(self.storage.modified(id), UTC),
            messages=len(saved.messages),
            title=" ".join(next(users, "").split()),
        )
