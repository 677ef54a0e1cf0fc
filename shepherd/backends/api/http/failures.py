"""Turns a provider's refusals into errors."""

import re
from dataclasses import dataclass, field
from http import HTTPStatus

from msgspec import Struct

from shepherd import errors, json_text, messages
from shepherd.backends.api.history import replace_surrogates
from shepherd.backends.api.overflow import (
    Overflow,
    error_text,
    is_lasting_limit,
    is_out_of_memory,
    is_rate_limit,
    parse_overflow,
    parse_request_limit,
    rejected_fields,
    searchable,
)
from shepherd.backends.api.prompt import rejects_images, rejects_tools

TRANSIENT = frozenset({408, 409, 425})
MODEL_FLAG = "`--model NAME`"
MAX_TEXT = 600
"""The maximum of characters of a provider's message that is shown to the user."""

TOO_LONG = "The conversation is too long for"

_QUOTA = re.compile(
    r"insufficient_quota|insufficient_balance|insufficient balance|billing_hard_limit"
    r"|billing_not_active|credit balance is too low|insufficient credits",
    re.IGNORECASE,
)
_WRONG_KEY = re.compile(
    r"invalid[_ ]api[_ ]key|incorrect api key"
    r"|api[_ ]key (?:is )?(?:not valid|not found|invalid|expired)",
    re.IGNORECASE,
)
"""Google and xAI refuse a key with status 400."""


class Refusal(Struct, frozen=True):
    """A refused request; `message` is the provider's text with the names of the refused fields."""

    status: int
    message: str


class Failure(Exception):  # noqa: N818 - not an error for the user: `error` is
    """A failed attempt; its text is a sentence with the reason.

    The user gets `error` if there is no further attempt. Another attempt may help if the failure is
    `transient`. `refusal` is set if the request itself, or access, was refused.
    """

    def __init__(
        self,
        error: errors.BackendError,
        why: str = "",
        *,
        retry_after: float | None = None,
        overflow: Overflow | None = None,
        refusal: Refusal | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(why or str(error))
        error.from_provider = True  # so our own server passes it on under a code (`relay_code`)
        self.error = error
        self.transient = transient
        self.retry_after = retry_after
        self.overflow = overflow
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The provider and the model of a request; `model` is "" for requests without one.

    It is reached through the host `proxy`, if there is one. `secrets` are removed from the
    provider's messages. A provider that is not `stored` was described on the command line, and must
    be corrected there. `has_key`: credentials are sent. `is_test`: `provider test` makes the
    request, so advice must not name that command.
    """

    provider: str
    model: str = ""
    url: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    proxy: str = ""
    stored: bool = True
    has_key: bool = True
    is_test: bool = False

    def __str__(self) -> str:
        return f"{self.provider} ({self.model})" if self.model else self.provider

    @property
    def how_to_choose(self) -> str:
        """The command that chooses one of its models."""
        return f"`shepherd provider set {self.provider} model NAME`" if self.stored else MODEL_FLAG

    @property
    def how_to_give_key(self) -> str:
        """A sentence with the command that stores another key."""
        if not self.stored:
            return "Give a valid one: `--api-key -` asks for it."
        return f"Store a valid one with `shepherd provider set {self.provider} api-key -`."

    @property
    def how_to_correct(self) -> str:
        """A sentence that helps if the provider does not know the model or the address."""
        if not self.stored:
            return f"Correct {MODEL_FLAG} or `--api-base URL`."
        if self.is_test:
            change = f"`shepherd provider set {self.provider}"
            return f"Correct them with {change} model NAME` or {change} base-url URL`."
        return f"`shepherd provider test {self.provider}` lists its models."

    def words(self, body: object) -> str:
        """The error's text, for the user."""
        return self.without_secrets(replace_surrogates(error_text(body)))[:MAX_TEXT]

    def without_secrets(self, text: str) -> str:
        """The text with an ellipsis in the place of each secret."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return text


def refused(
    target: RequestTarget, status: int, body: object, retry_after: float | None = None
) -> Failure:
    """The failure for an answer with an error status."""
    text = target.words(body)
    upstream_error = relayed(body, text, retry_after)
    if upstream_error is not None:
        return Failure(upstream_error)
    summary = f"{status}: {text}" if text else str(status)
    overflow = None
    if status not in (401, 403):  # without access nothing was read, whatever the words are
        overflow = parse_overflow(body) or parse_request_limit(body)
    if overflow is not None:
        # another Shepherd's text begins so already
        why = text if text.startswith(TOO_LONG) else f"{TOO_LONG} {target}: {text or status}"
        full = errors.ContextFullError(why, overflow.tokens_over, overflow.prompt_tokens)
        return Failure(full, overflow=overflow)
    words = searchable(body)
    # before the rate limits: many vendors tell an empty account by status 429
    if status in (401, 402, 403) or _QUOTA.search(words) or _WRONG_KEY.search(words):
        status = 401 if _WRONG_KEY.search(words) else status
        return Failure(_no_access(target, status, summary), refusal=Refusal(status, words))
    if is_rate_limit(status, body):
        return _rate_limited(target, summary, retry_after, lasting=is_lasting_limit(body))
    if is_out_of_memory(body):
        return Failure(
            errors.UnreachableError(
                f"{target} has not enough memory for this request ({summary}). "
                "Choose a smaller model or a shorter context."
            )
        )
    # some servers refuse images and tools by a status that means that they are broken
    lacks_feature = rejects_images(text) or rejects_tools(words)
    if status in TRANSIENT or (status >= 500 and not lacks_feature):
        transient = status != HTTPStatus.NOT_IMPLEMENTED and not is_final(body)
        how = "fails again and again" if transient else "fails"
        failed = errors.UnreachableError(f"{target} {how} ({summary}); try again later.")
        why = f"{target} fails ({summary})."
        return Failure(failed, why, transient=transient, retry_after=retry_after)
    refusal = Refusal(status, "\n".join([words, *rejected_fields(body)]))
    return Failure(_invalid(target, status, text), refusal=refusal)


def _rate_limited(
    target: RequestTarget, summary: str, retry_after: float | None, *, lasting: bool
) -> Failure:
    """The failure for too many requests; another attempt can't help against a `lasting` limit."""
    if lasting:
        text = f"{target} has reached a limit that lasts for an hour or longer ({summary})."
    else:
        text = f"{target} limits the rate of requests ({summary}); try again later."
    busy = errors.BusyError(text) if retry_after is None else errors.BusyError(text, retry_after)
    why = f"{target} limits the rate of requests ({summary})."
    return Failure(busy, why, transient=not lasting, retry_after=retry_after)


def unreachable(target: RequestTarget, why: str, *, transient: bool = True) -> Failure:
    """A connection that failed or ended before any answer."""
    where = f" at {target.url}" if target.url else ""
    where = f"{where} through the proxy {target.proxy}" if target.proxy else where
    why = target.without_secrets(why)
    text = f"{target} can't be reached{where}: {why}. Is it running, and is the address right?"
    short = f"{target} can't be reached: {why}."
    return Failure(errors.UnreachableError(text), short, transient=transient)


def no_api(target: RequestTarget) -> Failure:
    """A web page in the place of an API's answer."""
    text = f"{target} answers with a web page, not as an API: correct the base URL {target.url}."
    return Failure(errors.InvalidRequestError(text))


def _no_access(target: RequestTarget, status: int, summary: str) -> errors.AccessError:
    """The error for a missing key, a wrong key, or an account that does not allow the request."""
    if status in (401, 403) and not target.has_key:
        text = f"{target} refuses the request ({summary}). No API key was sent."
        return errors.AccessError(f"{text} {target.how_to_give_key}")
    if status == 401:
        return errors.AccessError(
            f"{target} refuses the API key ({summary}). {target.how_to_give_key}"
        )
    return errors.AccessError(
        f"{target} does not allow this ({summary}). Check the account's rights, plan and credit."
    )


def _invalid(target: RequestTarget, status: int, text: str) -> errors.BackendError:
    """The error for a refused request, with what the user can correct."""
    if status == 404:
        return errors.InvalidRequestError(
            f"{target} does not know the model or the address {target.url}: "
            f"{text.rstrip('.') or status}. {target.how_to_correct}",
            "model",
        )
    if 300 <= status < 400:
        return errors.InvalidRequestError(
            f"{target} answers that it is elsewhere ({status}): correct the base URL {target.url}."
        )
    return errors.InvalidRequestError(f"{target} refuses the request: {text or status}")


# Errors that another Shepherd passes on from the provider behind it. That one has named the
# provider and made all sensible retries. Nothing is added to its text and no request is repeated,
# so neither texts nor requests multiply along a chain of Shepherds.

ACCESS = "provider_access"
REFUSED = "provider_refused"
UNREACHABLE = "provider_unreachable"
BUSY = "provider_busy"
FAILED = "backend_error"

_ERRORS = {
    ACCESS: errors.AccessError,
    REFUSED: errors.InvalidRequestError,
    UNREACHABLE: errors.UnreachableError,
}


def relay_code(error: errors.BackendError) -> str:
    """The code with which our server passes on a provider's error; "" for other errors."""
    if not error.from_provider:
        return ""
    if isinstance(error, errors.BusyError):
        return BUSY
    return next((code for code, kind in _ERRORS.items() if isinstance(error, kind)), "")


def relayed(body: object, text: str, retry_after: float | None) -> errors.BackendError | None:
    """The error that an upstream passes on, None if the error is its own."""
    error = _error_object(body)
    code = json_text.as_text(error.get("code"))
    if code == BUSY:
        return (
            errors.BusyError(text) if retry_after is None else errors.BusyError(text, retry_after)
        )
    kind = _ERRORS.get(code)
    if kind is errors.InvalidRequestError:
        return errors.InvalidRequestError(text, json_text.as_text(error.get("param")) or None)
    return None if kind is None else kind(text)


def is_final(body: object) -> bool:
    """Whether a Shepherd says that its own model failed, which would happen again."""
    return json_text.as_text(_error_object(body).get("code")) == FAILED


def _error_object(body: object) -> messages.JsonObject:
    """The `error` in a body, which may be JSON text; {} if it has none."""
    whole = json_text.object_in(body) if isinstance(body, str) else json_text.as_object(body)
    return json_text.as_object(whole.get("error"))
