"""Finds, lists and deletes saved conversations."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from msgspec import Struct, structs

from shepherd.errors import SessionError
from shepherd.messages import Message, Role, message_to_json
from shepherd.transcript import records
from shepherd.transcript.storage import SessionFiles, SessionLog, SessionStorage


class Transcript:
    """The journal of one session; its file, or its rows, begin to exist at the first write.

    Each change is one line in one write, which the storage has when the call returns. So a killed
    process loses at most the line it was writing. The session is locked while the transcript is
    open.

    A failed write (disk full) does not end the conversation: `on_failure` is called once, and
    nothing more is written.
    """

    def __init__(
        self, storage: SessionStorage, header: records.Header, on_failure: Callable[[str], None]
    ) -> None:
        self.name = storage.name(header.id)
        self.header = header
        self._storage = storage
        self._on_failure = on_failure
        self._log: SessionLog | None = None  # before the first write
        self._is_closed = False
        # of each message in the conversation; None for a result that is in no line
        self._numbers: list[int | None] = []
        self._next_number = 0
        self._saved_part = (0, 0)
        """The characters of the growing answer and of its reasoning that are in lines."""

    @classmethod
    def reopen(
        cls, storage: SessionStorage, id: str, on_failure: Callable[[str], None]
    ) -> tuple["Transcript", records.SavedSession]:
        """Continue the session `id`; an incomplete last line is removed.

        Raises SessionError if it is open in another process or can't be read.
        """
        log = storage.open(id, on_failure)
        try:
            data = log.read()
            saved = records.parse_session(storage.name(id), data)
            if saved.sound_bytes < len(data):
                log.cut(saved.sound_bytes)
        except BaseException:
            log.release()
            raise
        transcript = cls(storage, saved.header, on_failure)
        transcript.name = storage.name(id)
        transcript._log = log
        transcript._numbers = list(saved.numbers)
        transcript._next_number = saved.next_number
        if not saved.complete:  # the last line lacks only its newline
            transcript._append(log, b"\n")
        if saved.is_unfinished:
            last = message_to_json(saved.messages[-1])
            transcript._write(records.MessageAdded(saved.next_number - 1, last))
        return transcript, saved

    def answer_grown(self, answer: Message) -> None:
        content, reasoning = self._saved_part
        lengths = len(answer.content), len(answer.reasoning)
        if self._log is None or lengths == self._saved_part:
            return
        self._write(
            records.AnswerGrown(
                self._next_number, answer.content[content:], answer.reasoning[reasoning:]
            )
        )
        self._saved_part = lengths

    def message_added(self, message: Message) -> None:
        self._numbers.append(self._next_number)
        self._write(records.MessageAdded(self._next_number, message_to_json(message)))
        self._next_number += 1

    def messages_evicted(self, ranges: Sequence[range]) -> None:
        """Record that the messages at these indexes have left the conversation."""
        evicted, self._numbers = self._split_numbers(ranges)
        self._write(records.MessagesEvicted(evicted))

    def cleared(self) -> None:
        self._numbers.clear()
        if self._log is not None:  # a session without a line stays without one
            self._write(records.Cleared())

    def branched(self, number: int, messages: Sequence[int | None], resumed: int | None) -> None:
        """Record the way to another branch; see `records.Branched`."""
        self._numbers, self._next_number = list(messages), number + 1
        self._write(records.Branched(number, tuple(n for n in messages if n is not None), resumed))

    def compacted(self, ranges: Sequence[range], summary: Message) -> None:
        """Record that a summary stands for the messages at these indexes."""
        replaced, remaining = self._split_numbers(ranges)
        place = ranges[0].start
        self._numbers = [*remaining[:place], self._next_number, *remaining[place:]]
        self._write(records.Compacted(self._next_number, replaced, message_to_json(summary)))
        self._next_number += 1

    def _split_numbers(self, ranges: Sequence[range]) -> tuple[tuple[int, ...], list[int | None]]:
        """The numbers of the messages at these indexes that are in a line, and those of others."""
        indexes = {index for r in ranges for index in r}
        inside = tuple(self._numbers[i] for i in sorted(indexes))
        others = [n for i, n in enumerate(self._numbers) if i not in indexes]
        return tuple(n for n in inside if n is not None), others

    def system_message_changed(self, text: str) -> None:
        """Record that the system message has changed."""
        self._setting_changed("system_message", text)

    def model_changed(self, name: str) -> None:
        """Record that another model answers from here on."""
        self._setting_changed("model", name)

    def close(self) -> None:
        """Make all lines durable and release the session; nothing is written afterwards."""
        self._is_closed = True
        if self._log is None:
            return
        try:
            self._log.sync()
        except (OSError, SessionError) as error:
            self._fail(error)
        else:
            self._release()

    def _setting_changed(self, name: str, value: str) -> None:
        """Record a setting, in the header as long as that is not written."""
        if self._log is None:  # the header is not written yet
            self.header = structs.replace(self.header, **{name: value})
        else:
            self._write(records.SettingChanged(name, value))

    def _write(self, change: records.Change) -> None:
        """Append a change; the first one also creates the session."""
        self._saved_part = (0, 0)
        if self._is_closed:
            return
        if self._log is not None:
            self._append(self._log, records.change_line(change))
        else:
            self._create(records.change_line(change))

    def _create(self, first_line: bytes) -> None:
        """Begin the session in the storage, with its header and this line."""
        try:
            self._log = self._storage.create(self.header.id, self._on_failure)
        except (OSError, SessionError) as error:
            self._fail(error)
            return
        self._append(self._log, records.header_line(self.header) + first_line)
        if self._is_closed:  # the lines could not be written
            with suppress(SessionError):  # readers skip a session without lines
                self._storage.delete(self.header.id)

    def _append(self, log: SessionLog, data: bytes) -> None:
        """Write whole lines; an error ends the saving and not the conversation."""
        try:
            log.append(data)
        except (OSError, SessionError) as error:
            self._fail(error)

    def _release(self) -> None:
        if self._log is not None:
            self._log.release()
            self._log = None

    def _fail(self, error: Exception) -> None:
        """Give up saving; the conversation goes on, and the user reads why."""
        self._is_closed = True
        self._release()
        reason = error.strerror if isinstance(error, OSError) else error
        self._on_failure(f"{self.name}: the session is no longer saved: {reason}")


class SessionSummary(Struct, frozen=True):
    """One line of `shepherd sessions list`; `title` is the user's first message."""

    id: str
    cwd: str
    model: str
    updated: datetime
    messages: int
    title: str


def new_id(started: datetime) -> str:
    """A new id for a session that starts at `started` (in UTC); ids sort by their times."""
    fraction = started.microsecond * 0x1000 // 1_000_000  # of the second, in three hex digits
    return f"{started:%Y%m%d-%H%M%S}-{fraction:03x}{secrets.randbelow(0x1000):03x}"


class SessionStore:
    """The sessions in a storage: the files of a directory, which need not exist, or another one."""

    def __init__(self, storage: SessionStorage | Path) -> None:
        self.storage = SessionFiles(storage) if isinstance(storage, Path) else storage

    def create(
        self, cwd: Path, model: str, system_message: str, on_failure: Callable[[str], None]
    ) -> Transcript:
        """The transcript of a new session; see `Transcript` for `on_failure`."""
        header = records.Header(
            new_id(datetime.now(UTC)), str(cwd), model, system_message, records.now()
        )
        return Transcript(self.storage, header, on_failure)

    def reopen(
        self, id: str, on_failure: Callable[[str], None]
    ) -> tuple[Transcript, records.SavedSession]:
        """Continue a session; `id` as for `find`."""
        return Transcript.reopen(self.storage, self.find(id), on_failure)

    def branch(self, id: str) -> str:
        """Copy a session as it is now, without locking it; `id` as for `find`. The copy's id."""
        source = self.find(id)
        first, _, lines = self.storage.read(source).partition(b"\n")
        header = structs.replace(
            records.parse_first_line(source, first), id=new_id(datetime.now(UTC))
        )
        log = self.storage.create(header.id, lambda _problem: None)
        try:
            log.append(records.header_line(header) + lines[: lines.rfind(b"\n") + 1])
            log.sync()
        finally:
            log.release()
        return header.id

    def read(self, id: str) -> records.SavedSession:
        """The current state of a session, without locking it; `id` as for `find`."""
        return self._read(self.find(id))

    def find(self, id: str) -> str:
        """The id of the one session whose id starts with `id`; raises SessionError."""
        matches = [full_id for full_id in self.storage.ids() if full_id.startswith(id)]
        if id in matches:
            return id
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise SessionError(f"{id} is the start of {len(matches)} sessions; give more of it.")
        raise SessionError(f"No session {id}; `shepherd sessions list` shows all.")

    def latest(self, cwd: Path) -> str:
        """The id of the newest session of `cwd` with a message; raises SessionError if none."""
        for session_id in self.session_ids(cwd):
            try:
                is_empty = not self._read(session_id).messages
            except SessionError:
                is_empty = False  # opening it then reports the error
            if not is_empty:
                return session_id
        raise SessionError(f"No saved session of {cwd}; `shepherd sessions list` shows all.")

    def session_ids(self, cwd: Path) -> Iterator[str]:
        """The ids of the sessions of `cwd`, the newest first, without those that are damaged."""
        for session_id, line in self.storage.headers():
            try:
                if records.parse_first_line(session_id, line).cwd == str(cwd):
                    yield session_id
            except SessionError:
                # `shepherd sessions list` shows it, with its error
                continue

    def summary(self, id: str) -> SessionSummary:
        """The summary of one session; `id` as for `find`."""
        session_id = self.find(id)
        return self._summary(session_id, self._read(session_id))

    def newest(self, cwd: Path, limit: int) -> list[SessionSummary]:
        """The summaries of at most `limit` sessions of `cwd` with a message, the newest first."""
        # `shepherd sessions list` shows the unreadable ones, with their errors
        return list(islice(self._summaries(self.session_ids(cwd), problems=[]), limit))

    def summaries(self) -> tuple[list[SessionSummary], list[str]]:
        """All sessions with a message, the newest first, and a sentence per unreadable one."""
        problems: list[str] = []
        return list(self._summaries(self.storage.ids(), problems)), problems

    def delete(self, id: str) -> str:
        """Delete a session and return its full id; raises SessionError if it is open elsewhere."""
        session_id = self.find(id)
        self.storage.delete(session_id)
        return session_id

    def _summaries(self, ids: Iterable[str], problems: list[str]) -> Iterator[SessionSummary]:
        """The summaries of those with a message; the errors of others are added to `problems`."""
        for session_id in ids:
            try:
                saved = self._read(session_id)
            except SessionError as error:
                problems.append(str(error))
                continue
            if saved.messages:
                yield self._summary(session_id, saved)

    def _read(self, id: str) -> records.SavedSession:
        return records.parse_session(self.storage.name(id), self.storage.read(id))

    def _summary(self, id: str, saved: records.SavedSession) -> SessionSummary:
        """The summary of a session that has been read."""
        # a prompt that is an image alone has only a plain text
        prompts = (m.content or m.plain_text for m in saved.messages if m.role is Role.USER)
        return SessionSummary(
            id=saved.id,
            cwd=saved.header.cwd,
            model=saved.model,
            updated=datetime.fromtimestamp(self.storage.modified(id), UTC),
            messages=len(saved.messages),
            title=" ".join(next(prompts, "").split()),
        )
