"""All errors that Shepherd raises on purpose.

ShepherdError               the message tells the user what to do
├── ConfigError             a setting, flag or file of settings is wrong
├── SessionError            a saved session can't be found or read
│   ├── SessionOpenError    another process has it open
│   └── SessionStorageError the database of sessions can't be used (a server answers 503)
├── MemoryStoreError        the memory's file can't be read or written
├── UndoError               changes to files can't be undone, or not without loss
├── ToolError               a tool failed; the message goes to the model as its result
│   ├── PlaceError          there is no such file, or it is not of the right kind
│   ├── ConflictError       something else has changed what a command has changed, too
│   └── UnkeptError         what a call replaces can't be kept for /undo
└── BackendError            the model can't answer
    ├── ModelLoadError      the model file is missing, damaged or does not fit
    ├── InvalidRequestError the request itself is wrong (a server answers 400)
    │   └── ImageError      an image can't be used, or not by this model
    ├── ContextFullError    the conversation is larger than the context
    ├── BusyError           the queue is full, or a rate limit holds (a server answers 503)
    ├── AccessError         a provider refuses the key or the account
    └── UnreachableError    a provider can't be reached, or fails again and again
"""

from collections.abc import Sequence


class ShepherdError(Exception):
    """Base of all errors with a message for the user; they are shown without a traceback."""


class ConfigError(ShepherdError):
    """A setting, flag or settings file is wrong; the message names it."""


class SessionError(ShepherdError):
    """A saved session can't be found or read."""


class SessionOpenError(SessionError):
    """Another process has the saved session `id` open."""

    def __init__(self, id: str) -> None:
        super().__init__(f"Session {id} is open in another Shepherd.")
        self.id = id


class SessionStorageError(SessionError):
    """The database of sessions can't be reached or used at the moment."""


class MemoryStoreError(ShepherdError):
    """The memory's file can't be read or written; the message names it."""


class UndoError(ShepherdError):
    """Changes to files can't be undone, or not without overwriting others; nothing happened.

    `details` are further texts for the user, such as diffs.
    """

    def __init__(self, message: str, *details: str) -> None:
        super().__init__(message)
        self.details = details


class ToolError(ShepherdError):
    """A tool failed; the model reads the message after `Error: `."""


class PlaceError(ToolError):
    """A call failed because of a path; anyone who can list the parent knows the reason."""


class ConflictError(ToolError):
    """Something else has changed these paths, too, so nothing was changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"something else changed {', '.join(paths)} at the same time")
        self.paths = tuple(paths)


class UnkeptError(ToolError):
    """What a call replaces or deletes can't be kept for /undo, so nothing was changed."""


class BackendError(ShepherdError):
    """The backend can't answer.

    `from_provider` means that a provider's API refused, and that no attempt is left.
    """

    from_provider = False


class ModelLoadError(BackendError):
    """The model can't be loaded; the message names the file and the reason."""


class InvalidRequestError(BackendError):
    """The request can't be served in any state of the backend; the message names the error.

    `param` is the parameter's name, None if it is not a single one.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ImageError(InvalidRequestError, ValueError):
    """An image can't be used because of its format, its size, or a model without vision.

    It is a ValueError so that validators of requests report it with the place of the image.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, "messages")


class ContextFullError(BackendError):
    """The conversation does not fit into the context.

    `tokens_over` is the number of tokens to remove, including room for an answer. `prompt_tokens`
    is the size of the prompt. Each is None if the backend does not know it.
    """

    def __init__(
        self, message: str, tokens_over: int | None = None, prompt_tokens: int | None = None
    ) -> None:
        super().__init__(message)
        self.tokens_over = tokens_over
        self.prompt_tokens = prompt_tokens


class BusyError(BackendError):
    """The backend's queue is full; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AccessError(BackendError):
    """A provider refuses the key or the account; the message names the provider."""


class UnreachableError(BackendError):
    """A provider can't be reached, or failed too often, before any part of the answer arrived.

    Another provider may answer instead.
    """


class UsageError(ShepherdError):
    """The command line does not make sense; exit code 2."""
