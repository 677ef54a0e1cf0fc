"""From an error body to how much is too much."""

from dataclasses import dataclass
from http import HTTPStatus

from shepherd.backends.api.overflow import texts
from shepherd.backends.api.overflow.body import field, searchable


@dataclass(frozen=True, slots=True)
class Overflow:
    """A prompt that does not fit, in the provider's tokens; None where it does not say.

    `asked_tokens` is the output that was asked for, `stated_over` what must go where only that is
    said. A `prompt_tokens` is exact: an estimator may learn from it. Lower bounds ("at least")
    are not taken for numbers.
    """

    limit: int | None = None
    prompt_tokens: int | None = None
    asked_tokens: int | None = None
    stated_over: int | None = None

    @property
    def tokens_over(self) -> int | None:
        """How many tokens must go, the output that was asked for included; at least 1."""
        if self.limit is None or self.prompt_tokens is None:
            return self.stated_over
        over = self.prompt_tokens + (self.asked_tokens or 0) - self.limit
        return max(1, over) if over >= 0 else self.stated_over

    @property
    def fits_with(self) -> int | None:
        """The most output to ask for so that this very prompt fits; None if it can't be so.

        Always less than what was asked, so that trying again with it gets further.
        """
        if self.limit is None or self.prompt_tokens is None:
            return None
        room = self.limit - self.prompt_tokens
        if room <= 0 or (self.asked_tokens is not None and room >= self.asked_tokens):
            return None
        return room


def parse_overflow(body: object) -> Overflow | None:
    """What the error says of a prompt that does not fit; None if it is about something else.

    `body` is the decoded JSON or the text of an answer that is no success, or the error object
    of a stream. Rate limits and quotas are no overflow, whatever they call exceeded.
    """
    text = searchable(body)
    if _limits_rate(body, text):
        return None
    prompt, limit = field(body, "n_prompt_tokens"), field(body, "n_ctx")
    if prompt is not None and limit is not None:
        return Overflow(limit, prompt)
    return _from_text(text) if texts.OVERFLOW.search(text) else None


def parse_request_limit(body: object) -> Overflow | None:
    """What the error says of a single request that is larger than a whole minute's or day's tokens.

    None if it says nothing of the kind. Such a request can only be made smaller.
    """
    for pattern in texts.LIMIT_AND_REQUEST:
        match = pattern.search(searchable(body))
        if match is not None:
            limit, requested = (texts.to_int(number) for number in match.groups())
            if requested > limit > 0:
                return Overflow(limit, stated_over=requested - limit)
    return None


def is_lasting_limit(body: object) -> bool:
    """Whether a rate limit is one of an hour or more, which no pause between attempts cures."""
    return texts.LASTING_LIMIT.search(searchable(body)) is not None


def is_out_of_memory(body: object) -> bool:
    """Whether the server says that it has not enough memory."""
    return texts.OUT_OF_MEMORY.search(searchable(body)) is not None


def is_rate_limit(status: int, body: object) -> bool:
    """Whether a failed answer means that too much was asked for too quickly, not too long."""
    return status == HTTPStatus.TOO_MANY_REQUESTS or _limits_rate(body, searchable(body))


def _limits_rate(body: object, text: str) -> bool:
    if field(body, "code") == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    return texts.RATE_LIMIT.search(text) is not None


def _from_text(text: str) -> Overflow:
    for pattern in texts.SUMS:
        match = pattern.search(text)
        if match is not None:
            prompt, asked, limit = (texts.to_int(n) for n in match.groups())
            return Overflow(limit or None, prompt, asked)
    limit = texts.first(texts.LIMIT, text) or None
    prompt = texts.first(texts.PROMPT, text)
    asked = texts.first(texts.ASKED, text)
    total = texts.first(texts.TOTAL, text)
    over = texts.first(texts.OVER, text) or None
    if prompt is None and total is not None:
        prompt = total - asked if asked is not None and asked < total else total
    if prompt is None and over is not None and limit is not None:
        prompt = limit + over
    return Overflow(limit, prompt, asked, over)
