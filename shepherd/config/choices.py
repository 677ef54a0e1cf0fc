"""The values that a setting, an option and a slash command share."""

from enum import StrEnum


class ApproveMode(StrEnum):
    """The tool calls that run without approval."""

    ASK = "ask"
    EDITS = "edits"
    PLAN = "plan"
    AUTO = "auto"
    ALL = "all"
    NONE = "none"


class SandboxMode(StrEnum):
    """Whether commands run in a sandbox: if one works, always, or never."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


class AuthMode(StrEnum):
    """How the server knows its clients: not at all, or by keys."""

    NONE = "none"
    JSON = "json"


class ShowToolCalls(StrEnum):
    """Where an answer of the server's agent tells which tools ran."""

    OFF = "off"
    REASONING = "reasoning"
    CONTENT = "content"


class LogFormat(StrEnum):
    """The form of the server's log."""

    TEXT = "text"
    JSON = "json"


class Effort(StrEnum):
    """How much a model reasons, in rising order; no API supports all of them."""

    UNSET = ""
    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
