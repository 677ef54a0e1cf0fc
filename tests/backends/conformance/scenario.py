"""What the suite tries with every backend."""

from enum import StrEnum


class Scenario(StrEnum):
    """One thing that may happen; a subject says why one can't happen to it."""

    TEXT = "text"
    UNICODE = "unicode"
    THINKING = "thinking"
    CALL = "one tool call"
    CALLS = "parallel tool calls"
    CANCEL = "cancel"
    OVERFLOW = "overflow and recovery"
    RETRY = "retry"
    MALFORMED = "malformed stream"
    CUT = "connection cut at every byte"
    KEY = "wrong key"
    MODEL = "unknown model"
    SDK = "read as the vendor's own client reads it"
