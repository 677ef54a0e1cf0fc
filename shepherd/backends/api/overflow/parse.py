"""Determines from an error body how much does not fit."""

from dataclasses import dataclass
from http import HTTPStatus

from shepherd.backends.api.overflow import texts
from shepherd.backends.api.overflow.body import field, searchable


@dataclass(frozen=True, slots=True)
class Overflow:
    """A prompt that does not fit, in the provider's tokens; None if a number is missing.

    `output_tokens` is the requested output. `stated_over` is the excess, if the error states only
    that. A `prompt_tokens` is exact: an estimator may learn from it. Lower bounds ("at least") are
    ignored.
    """

    limit: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    stated_over: int | None = None

    @property
    def tokens_over(self) -> int | None:
        """The tokens that must be removed, including the requested output; at least 1."""
        if self.limit is None or self.prompt_tokens is None:
            return self.stated_over
        over = self.prompt_tokens + (self.output_tokens or 0) - self.limit
        return max(1, over) if over >= 0 else self.stated_over

    @property
    def fits_with(self) -> int | None:
        """The largest output with which this prompt fits; None if there is none.

        Always less than the requested output, so that a retry makes progress.
        """
        if self.limit is None or self.prompt_tokens is None:
            return None
        room = self.limit - self.prompt_tokens
        if room <= 0 or (self.output_tokens is not None and room >= self.output_tokens):
            return None
        return room


def parse_overflow(body: object) -> Overflow | None:
    """The overflow that the error describes; None if it is about something else.

    `body` is the decoded JSON or the text of an unsuccessful answer, or the error object of a
    stream. Rate limits and quotas are not overflows, whatever words they use.
    """
    text = searchable(body)
    if _limits_rate(body, text):
        return None
    prompt, limit = field(body, "n_prompt_tokens"), field(body, "n_ctx")
    if prompt is not None and limit is not None:
        return Overflow(limit, prompt)
    return _from_text(text) if texts.OVERFLOW.search(text) else None


def parse_request_limit(body: object) -> Overflow | None:
    """The overflow of a request that is larger than a whole minute's or day's tokens.

    None if the error is of another kind. Such a request can only be made smaller.
    """
    for pattern in texts.LIMIT_AND_REQUEST:
        match = pattern.search(searchable(body))
        if match is not None:
            limit, requested = (texts.to_int(number) for number in match.groups())
            if requested > limit > 0:
                return Overflow(limit, stated_over=requested - limit)
    return None


def is_lasting_limit(body: object) -> bool:
    """Whether a rate limit lasts an hour or more, so that pauses between attempts do not help."""
    return texts.LASTING_LIMIT.search(searchable(body)) is not None


def is_out_of_memory(body: object) -> bool:
    """Whether the server says that it does not have enough memory."""
    return texts.OUT_OF_MEMORY.search(searchable(body)) is not None


def is_rate_limit(status: int, body: object) -> bool:
    """Whether a failed answer means that requests were too frequent, not too long."""
    return status == HTTPStatus.TOO_MANY_REQUESTS or _limits_rate(body, searchable(body))


def _limits_rate(body: object, text: str) -> bool:
    if field(body, "code") == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    return texts.RATE_LIMIT.search(text) is not None


def _from_text(text: str) -> Overflow:
    for pattern in texts.SUMS:
        match = pattern.search(text)
        if match is not None:
            prompt, output, limit = (texts.to_int(n) for n in match.groups())
            return Overflow(limit or None, prompt, output)
    limit = texts.first(texts.LIMIT, text) or None
    prompt = texts.first(texts.PROMPT, text)
    output = texts.first(texts.OUTPUT, text)
    total = texts.first(texts.TOTAL, text)
    over = texts.first(texts.OVER, text) or None
    if prompt is None and total is not None:
        prompt = total - output if output is not None and output < total else total
    if prompt is None and over is not None and limit is not None:
        prompt = limit + over
    return Overflow(limit, prompt, output, over)
