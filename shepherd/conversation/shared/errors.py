"""What a shared session refuses to a client."""

from enum import StrEnum

from shepherd.errors import ShepherdError


class RefusalCode(StrEnum):
    """Why; a part of the protocol."""

    REQUEST_ENDED = "request_ended"
    REQUEST_NOT_FOUND = "request_not_found"
    CONVERSATION_BUSY = "conversation_busy"
    APPROVAL_NOT_FOUND = "approval_not_found"
    NOT_YOUR_REQUEST = "not_your_request"
    INVALID_DECISION = "invalid_value"


class SharedSessionError(ShepherdError):
    """The session can't do what a client wants now, or not for this client."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code
