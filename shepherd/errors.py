"""Every error that Shepherd raises on purpose.

ShepherdError               the message tells the user what to do
├── ConfigError             a setting, flag or file of settings is wrong
├── SessionError            a saved session can't be found or read
├── MemoryStoreError        the store of what was remembered can't be read or written
├── ToolError               a tool failed; the message goes to the model as its result
│   └── PlaceError          there is no such file, or it is not of the right kind
└── BackendError            the model can't answer
    ├── ModelLoadError      the model file is missing, damaged or does not fit
    ├── InvalidRequestError the request itself is wrong (a server answers 400)
    │   └── ImageError      an image can't be used, or not by this model
    ├── ContextFullError    the conversation is larger than the context
    ├── BusyError           the queue is full, or a rate limit holds (a server answers 503)
    ├── AccessError         a provider refuses the key or the account
    └── UnreachableError    a provider can't be reached, or fails again and again
"""


class ShepherdError(Exception):
    """Base of all errors whose message is written for the user; no traceback is shown for them."""


class ConfigError(ShepherdError):
    """A setting, flag or settings file is wrong; the message names it."""


class SessionError(ShepherdError):
    """A saved session can't be found or read."""


class MemoryStoreError(ShepherdError):
    """The store of what was remembered can't be read or written; the message names it."""


class ToolError(ShepherdError):
    """A tool failed; the message is what the model reads after `Error: `."""


class PlaceError(ToolError):
    """What is at a path, or is not, makes the call fail; anyone who can list the parent knows."""


class BackendError(ShepherdError):
    """The backend can't answer.

    `from_provider`: a provider's API said so; the text names it, and no try is left.
    """

    from_provider = False


class ModelLoadError(BackendError):
    """The model can't be loaded; the message names the file and the reason."""


class InvalidRequestError(BackendError):
    """The request can't be served as it is, whatever the backend's state; names what is wrong.

    `param` is the parameter's name, None if it is no single one.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ImageError(InvalidRequestError):
    """An image can't be used: its format, its size, or a model that can't see."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "messages")


class ContextFullError(BackendError):
    """The conversation does not fit into the context.

    `tokens_over` is how many tokens must go, room for an answer included; `prompt_tokens` is how
    many there are. Either is None if the backend can't tell.
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
    """A provider refuses the key, or the account may not do this; names the provider."""


class UnreachableError(BackendError):
    """A provider can't be reached, or failed too often; nothing of the answer had come.

    Another provider may be asked instead.
    """
