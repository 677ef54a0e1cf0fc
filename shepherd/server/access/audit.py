"""The audit: a private file with a line for each tool that clients had the server run.

Arguments of tools are in it in a short form, without what looks like a key or a password.
"""

import json
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import cast

from msgspec import Struct, field, structs

from shepherd import errors, events, messages
from shepherd.config.files import exclusive
from shepherd.config.secrets import keys_in
from shepherd.conversation.own_commands import SIGN
from shepherd.server.errors import ApiError
from shepherd.server.operation.traces import span
from shepherd.server.record import CallOrigin, calling_for, current_origin
from shepherd.tools.permissions import content, rules
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import AnyTool, CallRunner, ToolResult

OLD_FILES = 3
"""Full files that are kept: FILE.1 is the newest of them."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

logger = logging.getLogger(__name__)

MAX_TEXT = 200
"""Characters that are kept of a text."""

MAX_ITEMS = 20

MAX_DEPTH = 4

MAX_VALUES = 60

MAX_NUMBER = 10**20

CUT = "…"

MAX_ARGUMENTS = 2000
"""Characters of all arguments together, in JSON."""

HIDDEN = "[hidden]"

_SEARCHED_CHARACTERS = 4 * MAX_TEXT
"""Characters in which secrets are searched for."""

_NAME = r"(?:passw|passphrase|secret|token|credential|api[_-]?key|private[_-]?key)[\w.-]*"

_SECRET_NAME = re.compile(rf"{_NAME}|authorization|cookie|^pwd$|^pass$", re.IGNORECASE)

_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\s"',;&]+)"""

_PATTERNS = (
    re.compile(
        rf"(?i)(?P<keep>authorization[\"']?\s*[:=]\s*)(?:(?:bearer|basic|digest|token)\s+)?{_VALUE}"
    ),
    re.compile(r"(?i)(?P<keep>\b(?:set-)?cookie[\"']?\s*:\s*)[^\r\n\"']+"),
    re.compile(r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{8,}"),
    re.compile(rf"(?i)(?P<keep>(?:{_NAME}|\bpwd)[\"']?\s*(?:[:=]|\s)\s*){_VALUE}"),
    re.compile(r"(?P<keep>://[^\s/:@]*:)[^\s/@]+(?=@)"),
    re.compile(r"(?P<keep>\s(?:-u|--user)[ =]?[^\s:]*:)\S+"),
    re.compile(
        r"(?P<keep>)(?:\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}|\bgh[pousr]_[A-Za-z0-9]{16,}"
        r"|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
        r"|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}[\w.-]*)"
    ),
)


def short_arguments(arguments: messages.JsonObject, secrets: Mapping[str, str]) -> object:
    """The arguments without secrets, with texts and lists that are too long cut.

    `secrets` maps values that must not appear to the names that replace them.
    """
    short = _Shortener(secrets).short(arguments)
    # many short values can still be too long together; the beginning of their JSON is kept then
    text = json.dumps(short, ensure_ascii=False, default=str)
    return short if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}{CUT}"


def without_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """A text without what looks like a key or a password."""
    for secret, name in secrets.items():
        text = text.replace(secret, f"[{name}]")
    if content.holds_private_key(text):
        return HIDDEN
    for pattern in _PATTERNS:  # `keep` is the part before the secret, such as `token=`
        text = pattern.sub(rf"\g<keep>{HIDDEN}", text)
    return text


class _Shortener(Struct):
    """Shortens values, of which only the first MAX_VALUES are kept."""

    secrets: Mapping[str, str]
    values_left: int = MAX_VALUES

    def short(self, value: object, levels_left: int = MAX_DEPTH) -> object:
        """The value without secrets and with a limited size; what is cut off is CUT."""
        self.values_left -= 1
        is_too_deep = isinstance(value, dict | list) and not levels_left
        if self.values_left < 0 or is_too_deep:
            return CUT
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(cast(Mapping[object, object], value), levels_left)
        if isinstance(value, list):
            entries = cast(list[object], value)
            items = [self.short(entry, levels_left - 1) for entry in entries[:MAX_ITEMS]]
            return [*items, CUT] if len(entries) > MAX_ITEMS else items
        is_long = isinstance(value, int) and abs(value) > MAX_NUMBER
        return CUT if is_long else value

    def _object(self, fields: Mapping[object, object], levels_left: int) -> dict[str, object]:
        """An object; the value of a field such as `api_key` is hidden, whatever it is."""
        redacted: dict[str, object] = {}
        for name, value in islice(fields.items(), MAX_ITEMS):
            is_secret = _SECRET_NAME.search(str(name)[:MAX_TEXT]) is not None
            short = HIDDEN if is_secret else self.short(value, levels_left - 1)
            redacted[self._text(str(name))] = short
        return redacted | {CUT: CUT} if len(fields) > MAX_ITEMS else redacted

    def _text(self, text: str) -> str:
        """A text; a secret is searched beyond the cut too, because half of it is no match."""
        clean = without_secrets(text[:_SEARCHED_CHARACTERS], self.secrets)
        return clean if len(text) <= MAX_TEXT else f"{clean[:MAX_TEXT]}{CUT}"


MAX_DECISIONS = 10

UNKNOWN = "(unknown)"
"""The name of a tool that does not exist: the client can have made up anything."""


class AuditError(errors.ShepherdError):
    """A line can't be written, and the settings demand one."""


class AuditLog(Struct):
    """Writes lines to the file at `path`; without one there is no audit.

    A file of more than `max_bytes` is renamed, and a new one begins. If a line can't be written,
    the log says so once; if it is `required`, the call is refused.
    """

    path: Path | None = None
    max_bytes: int = 16 * 1024 * 1024
    required: bool = False
    _warned: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _write(self, entry: Mapping[str, object]) -> OSError | None:
        """Write a line; returns the error if that fails, which is logged if it is the first."""
        try:
            self._append(entry)
        except OSError as error:
            if not self._warned:  # once, until a line is written again
                logger.error("The audit of tool calls can't be written: %s", error)
            self._warned = True
            return error
        self._warned = False
        return None

    @contextmanager
    def noted(self, entry: Mapping[str, object], record: "CallRecord") -> Generator[None]:
        """Do something with `entry` as its line; the record tells what came of it.

        If lines are required, there is one before it too; entering raises AuditError if that can't
        be written. What is cancelled has a line at its end, like all else.
        """
        started = time.perf_counter()
        try:
            error = self._write({"event": "begin", **entry}) if self.required else None
            if error is not None:
                raise AuditError("the audit of tool calls can't be written") from error
            yield
        except AuditError:
            record.outcome = "refused"
            raise
        finally:
            seconds = round(time.perf_counter() - started, 3)
            entry = {**entry, "event": "end", "decisions": record.decisions}
            self._write({**entry, "seconds": seconds, "outcome": record.outcome})

    def _append(self, entry: Mapping[str, object]) -> None:
        """Add a line to the file; raises OSError. Without a file it is an error only if required.

        Other servers may write to the file, so it is locked.
        """
        path = self.path
        if path is None:
            if self.required:
                raise FileNotFoundError("there is no file for it")
            return
        line = json.dumps(entry, ensure_ascii=True, default=str).encode() + b"\n"
        with self._lock, exclusive(path):
            if path.exists() and path.lstat().st_size + len(line) > self.max_bytes:
                _rotate(path)
            _append_line(path, line)


def _rotate(path: Path) -> None:
    """Rename FILE to FILE.1, FILE.1 to FILE.2 and so on; the oldest file is lost."""
    for number in range(OLD_FILES, 0, -1):
        older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))


def _append_line(path: Path, line: bytes) -> None:
    """Add a line to a private file; raises OSError, and leaves no part of a line behind."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        status = os.fstat(descriptor)
        # a pipe, or the file of another user, would hand the lines to others
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise OSError(f"{path} is another user's")
        if stat.S_IMODE(status.st_mode) != 0o600:  # the user or a copy may have opened it to others
            os.fchmod(descriptor, 0o600)
        written = os.write(descriptor, line)
        if written != len(line):  # the disk is full
            os.ftruncate(descriptor, status.st_size)
            raise OSError(f"{path}: no space is left")
    finally:
        os.close(descriptor)


class CallRecord(Struct):
    """The `CallObserver` of one call: the decisions on it, each with its rule or reason.

    `secrets` are those that must not appear in them. `outcome` is how the call has ended.
    """

    secrets: Mapping[str, str]
    decisions: list[messages.JsonObject] = field(default_factory=list[messages.JsonObject])
    has_run: bool = False
    outcome: str = "cancelled"

    def ruled(self, decision: rules.Decision, cause: str) -> None:
        """Note what the permission rules have decided, and which rule or reason that was."""
        self.add(decision.value, "rules", cause)

    def answered(self, approval: Approval) -> None:
        """Note what a client has decided, or why nobody could."""
        if approval.by:  # the name of a key; without it nobody has answered
            self.add(approval.choice.value, f"key {approval.by}", "")
        else:
            self.add(approval.choice.value, "nobody", approval.reason)

    def started(self) -> None:
        """Note that the call runs: what follows is no denial any more."""
        self.has_run = True

    def add(self, decision: str, by: str, cause: str) -> None:
        """Note a decision."""
        if len(self.decisions) < MAX_DECISIONS:  # a tool may make any number of calls
            cause = without_secrets(cause[:MAX_TEXT], self.secrets)
            self.decisions.append({"decision": decision, "by": by, "cause": cause})

    def ended(self, result: ToolResult) -> None:
        """Note the result; only a call that never ran was denied.

        The last decision about one that ran can be that of a call in it.
        """
        last = self.decisions[-1]["decision"] if self.decisions else ""
        if result.ok:
            self.outcome = "ok"
        elif last == Choice.DENY.value and not self.has_run:
            self.outcome = "denied"
        else:
            self.outcome = "failed"


class AuditedTools(Struct, frozen=True):
    """Runs calls as `runner` does, and notes each; also those of models that its tools call.

    `model` is the one that calls, "" for a client. `origin` tells where the call that runs comes
    from.
    """

    runner: ToolRunner
    audit: AuditLog
    model: str = ""
    origin: Callable[[], CallOrigin] = current_origin

    @property
    def tools(self) -> Iterable[AnyTool]:
        """The tools that the runner offers."""
        return self.runner.tools

    def on_behalf_of(self, caller: str, *, in_layer: bool = False) -> CallRunner:
        """A runner for a model that a tool calls, with the same rules and the same approver."""
        return self.runner.on_behalf_of(caller, in_layer=in_layer)

    async def settle(self, *, keep: bool = True) -> str:
        """Commit what the calls have changed in a layer of their own, or drop it."""
        return await self.runner.settle(keep=keep)

    async def run(
        self,
        call: messages.ToolCall,
        output_bytes: int | None = None,
        on_event: events.EventCallback = events.ignore_events,
    ) -> ToolResult:
        """The result of the call; a call that can't be noted is refused if it must be."""
        record = CallRecord(self.runner.context.secrets)
        with calling_for(self.model):
            entry = self._entry(call)
            try:
                with (
                    self.audit.noted(entry, record),
                    span("tool", gen_ai__tool__name=entry["tool"]),
                ):
                    # a tool that has a model call tools gets a runner that notes these too
                    runner = self.runner.observed_by(
                        record, lambda nested: structs.replace(self, runner=nested)
                    )
                    result = await runner.run(call, output_bytes, on_event)
                    record.ended(result)
            except AuditError as error:
                result = ToolResult(f"Error: not run: {error}", ok=False)
            finally:
                outcome = record.outcome
                if outcome not in ("ok", "cancelled"):  # only the audit tells which
                    outcome = "refused or failed"
                logger.info("Tool %s, key %s: %s", entry["tool"], entry["key"] or "-", outcome)
        return result

    def _entry(self, call: messages.ToolCall) -> messages.JsonObject:
        """The beginning of a call's lines."""
        runner = self.runner
        # a name that no tool has is text of the model, which could hold a secret
        name = UNKNOWN if runner.registry.get(call.name) is None else call.name
        origin = self.origin()
        if runner.caller:  # a tool whose model calls this one
            origin = structs.replace(origin, model=runner.caller)
        return _line_start(name, short_arguments(call.arguments, runner.context.secrets), origin)


@contextmanager
def noted_command(audit: AuditLog, name: str, argument: str) -> Generator[None]:
    """Run a user's command with a line in the audit, also for one that is refused.

    Raises ApiError before the command runs if the line can't be written and must be.
    """
    record = CallRecord(keys_in(os.environ))
    tool = name if name.startswith(SIGN) else f"/{name}"  # `!ls` or `/clear`
    arguments = short_arguments({"argument": argument}, record.secrets)
    try:
        with audit.noted(_line_start(tool, arguments, current_origin()), record):
            try:
                yield
                record.outcome = "ok"
            except ApiError as error:
                record.outcome = "denied"
                record.add("deny", "scopes", error.message)
                raise
            except Exception:
                record.outcome = "failed"
                raise
    except AuditError as error:
        raise ApiError(503, f"The command is not run: {error}", "audit_unavailable") from error


def _line_start(name: str, arguments: object, origin: CallOrigin) -> messages.JsonObject:
    """The beginning of a line of the audit."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"time": moment, **structs.asdict(origin), "tool": name, "arguments": arguments}
