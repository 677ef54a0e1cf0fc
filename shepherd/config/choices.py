"""The words that a setting, an option and a slash command allow alike."""

from enum import StrEnum


class ApproveMode(StrEnum):
    """Which calls of tools run without a question."""

    ASK = "ask"
    EDITS = "edits"
    AUTO = "auto"
    ALL = "all"
    NONE = "none"


class SandboxMode(StrEnum):
    """Whether commands run in a sandbox: where one works, always, never."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


class AuthMode(StrEnum):
    """How the server knows its clients: not at all, or by keys."""

    NONE = "none"
    JSON = "json"


class Effort(StrEnum):
    """How much a model reasons, the least first; no API knows all of them."""

    UNSET = ""
    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
