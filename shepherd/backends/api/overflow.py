"""Reads the errors of providers: above all, whether and by how much a conversation does not fit.

Nobody's format is assumed. The words and codes are collected from wherever they stand in the body,
and a few phrases that all servers share say what they mean. The texts of some thirty servers are
in the tests.
"""

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import cast

from msgspec import Struct

from shepherd import json_text, messages

MAX_TEXT = 2_000
"""An error text longer than this many characters is cut."""

MAX_READ = 20_000
"""The number of a text's characters that are searched, and decoded if they are JSON."""

MAX_DEPTH = MAX_ITEMS = 20
"""Objects within each other, and items of a list, that are read."""

_INNER = ("message", "error", "detail", "errors", "metadata", "raw", "details", "violations")
_LEAVES = ("msg", "errorMessage", "Message")
_CODES = ("code", "type", "status", "error_type", "error_code", "__type", "quotaId")
_TITLE = re.compile(r"<title>([^<]{1,300})</title>", re.IGNORECASE)

_RATE_LIMIT = re.compile(
    r"rate[ _-]?limit|too[ _]many[ _]requests|\bquota|per[ _](?:minute|min|hour|day)\b|\bthrottl"
    r"|resource[ _]exhausted|please wait before trying|server[ _]busy|usage limit",
    re.IGNORECASE,
)
_LASTING_LIMIT = re.compile(
    r"per[ _-]?(?:hour|day|week|month)"
    r"|\b(?:hourly|daily|weekly|monthly)\b.{0,30}(?:limit|quota|allowance|usage)"
    r"|\((?:rpd|tpd)\)|\blimit: ?0\b|\bspend(?:ing)? limit|billing cycle",
    re.IGNORECASE,
)
"""Limits that still apply after a pause of seconds."""

_OUT_OF_MEMORY = re.compile(
    r"requires more (?:system |gpu |video )?memory|out[ _-]?of[ _-]?memory"
    r"|(?:not enough|insufficient) (?:\w+ )?memory"
    r"|(?:can(?:no|')t|unable to|failed to) allocate\b|memory allocation (?:has )?failed",
    re.IGNORECASE,
)

OVERFLOW = re.compile(
    r"(?:context|prompt|inputs?|messages|contents|payload|entity|length).{0,60}"
    r"(?:exceed|(?<!string )too[ _](?:long|large)|longer than|greater than|超长|overflow|is full)"
    r"|(?:exceed|maximum|longer than).{0,40}(?:context|(?:prompt|model|input) length)"
    r"|request[_ ]too[_ ]large|request exceeds the maximum|too long to fit"
    r"|input token count.{0,30}supports up to|reduce the length of|context size is"
    r"|inputs`?.{0,30}must (?:be|have)|input length should be|exceeded model token limit"
    r"|too many tokens: (?!max)",
    re.IGNORECASE,
)

_NUMBER = (
    r"(?<![\w.,])([0-9]{1,3}(?:[,.'_\u00a0\u202f][0-9]{3})+|[0-9]{1,12})"
    r"(?:\.0)?(?!\w|[,.][0-9])"
)
"""A number, with or without separators between its thousands; not part of another, not `128k`."""


def _with_numbers(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("#", _NUMBER), re.IGNORECASE)


_SUM = _with_numbers(r"# \+ # > #")
"""Prompt, completion and limit in one."""

_LIMIT = _with_numbers(
    r"(?:context (?:length|window|size|limit)|maximum (?:prompt|model|input) length"
    r"|allowed(?: input)? length|tokens allowed|token limit|limit(?: for this model)? (?:is|of)"
    r"|up to|model with|must be <=|less than|cannot exceed|max_(?:num_tokens|seq_len|input_len)"
    r"|n_ctx|tokens >|input length should be \[[0-9]+)\W{0,2}(?:(?:of|is) )?(?:only )?\(?#"
)
_PROMPT = _with_numbers(
    r"(?:resulted in|(?:request|prompt|input) \((?:total )?(?:length )?|(?:request|prompt) has"
    r"|contains|token count(?: is| of)?|too long:|(?:input|prompt) length|given:"
    r"|current length is|keep the first|n_keep:) ?\(?#|# tokens from the input messages"
)
_TOTAL = _with_numbers(r"requested:? (?:about |a total of |tokens \()?#(?: tokens|\))|received #")
"""Prompt and completion together, or the prompt if no completion is mentioned."""

_OUTPUT = _with_numbers(
    r"# (?:tokens )?(?:(?:in|for) the (?:completion|output)|`?max_new_tokens|output tokens)"
    r"|tokens'? .{0,40}is too large: #"
)
_OVER = _with_numbers(r"by # tokens")
_LIMIT_AND_REQUEST = _with_numbers(r"limit:? #,? (?:used:? [0-9,.]+,? )?requested:? #")
"""The limit of a minute or a day, and the size of one request."""


class Overflow(Struct, frozen=True):
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
        # numbers that would fit contradict the refusal, so they are not the ones that count
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
    # llama.cpp states both as numbers of their own
    prompt, limit = _field(body, "n_prompt_tokens"), _field(body, "n_ctx")
    if prompt is not None and limit is not None:
        return Overflow(limit, prompt)
    return _from_text(text) if OVERFLOW.search(text) else None


def parse_request_limit(body: object) -> Overflow | None:
    """The overflow of a request that is larger than a whole minute's or day's tokens.

    None if the error is of another kind. Such a request can only be made smaller.
    """
    match = _LIMIT_AND_REQUEST.search(searchable(body))
    if match is None:
        return None
    limit, requested = map(_to_int, match.groups())
    # a smaller request is refused because of the others before it: a pause helps
    return Overflow(limit, stated_over=requested - limit) if requested > limit > 0 else None


def is_lasting_limit(body: object) -> bool:
    """Whether a rate limit lasts an hour or more, so that pauses between attempts do not help."""
    return _LASTING_LIMIT.search(searchable(body)) is not None


def is_out_of_memory(body: object) -> bool:
    """Whether the server says that it does not have enough memory."""
    return _OUT_OF_MEMORY.search(searchable(body)) is not None


def is_rate_limit(status: int, body: object) -> bool:
    """Whether a failed answer means that requests were too frequent, not too long."""
    return status == HTTPStatus.TOO_MANY_REQUESTS or _limits_rate(body, searchable(body))


def error_text(body: object) -> str:
    """The message of an error body for the user, cut to a sane length; "" without one."""
    texts = dict.fromkeys(text for text in _messages(body, fields=True) if text)
    text = ": ".join(texts) or _whole(body)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def searchable(body: object) -> str:
    """All of the error's own words and codes, without any part of the request that it repeats."""
    values = [part.get(field) for part in _objects(body) for field in _CODES]
    codes = [code for code in values if isinstance(code, str)]
    return "\n".join([*_messages(body), *codes])[:MAX_READ]


def rejected_fields(body: object) -> list[str]:
    """The fields of the request that an error names, with dots between."""
    names: list[str] = []
    for part in _objects(body):
        if isinstance(name := part.get("param"), str):
            names.append(name)
        if steps := json_text.as_list(part.get("loc")):
            names.append(".".join(map(str, steps)))
    return list(dict.fromkeys(names))


def _limits_rate(body: object, text: str) -> bool:
    """Whether requests were too frequent; `text` are the words of the error's `body`."""
    if _field(body, "code") == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    return _RATE_LIMIT.search(text) is not None


def _from_text(text: str) -> Overflow:
    """The numbers in an error's words; what the words leave out stays None."""
    if match := _SUM.search(text):  # 30000 + 4096 > 32768
        prompt, output, limit = map(_to_int, match.groups())
        return Overflow(limit or None, prompt, output)
    # context length is 4097 tokens … exceeded by 12 tokens
    limit, over = _number(_LIMIT, text) or None, _number(_OVER, text) or None
    # messages resulted in 4294 tokens … 512 in the completion … requested 4806 tokens
    prompt, output, total = (_number(p, text) for p in (_PROMPT, _OUTPUT, _TOTAL))
    if prompt is None and total is not None:
        prompt = total
        if output is not None and output < total:  # else the output is not a part of it
            prompt = total - output
    if prompt is None and over is not None and limit is not None:
        prompt = limit + over
    return Overflow(limit, prompt, output, over)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    """The number in the first match, None without a match."""
    match = pattern.search(text)
    return None if match is None else _to_int(next(filter(None, match.groups())))


def _to_int(number: str) -> int:
    """The value of a number as `_NUMBER` matches it."""
    return int(re.sub(r"[^0-9]", "", number))


def _walk(value: object, depth: int = 0) -> Iterator[str | messages.JsonObject]:
    """The texts and objects in the usual places of errors; an object after what is in it.

    A text that is JSON counts as its value.
    """
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        inner = _decoded(value)
        if inner is value:
            yield value
        else:
            yield from _walk(inner, depth + 1)
    elif isinstance(value, list):
        for item in cast(list[object], value)[:MAX_ITEMS]:
            yield from _walk(item, depth + 1)
    elif isinstance(value, dict):
        error = cast(messages.JsonObject, value)
        for key in _INNER:  # only these fields: others repeat the request
            yield from _walk(error.get(key), depth + 1)
        yield error


def _objects(body: object) -> list[messages.JsonObject]:
    return [part for part in _walk(body) if not isinstance(part, str)]


def _messages(body: object, *, fields: bool = False) -> Iterator[str]:
    """The texts of an error; `fields`: a problem of pydantic's comes with the name of its field."""
    for part in _walk(body):
        if isinstance(part, str):
            yield _plain(part)
            continue
        # "loc": ["body", "messages", 0] becomes "messages.0: "
        steps = [str(step) for step in json_text.as_list(part.get("loc"))] if fields else []
        name = ".".join(steps[1:] if steps[:1] == ["body"] else steps)
        lead = f"{name}: " if name else ""
        for text in map(part.get, _LEAVES):
            if isinstance(text, str):
                yield lead + _plain(text)


def _field(body: object, name: str) -> int | None:
    """The first number that is not 0 in a field `name`, anywhere in the error; None without one."""
    numbers = (json_text.as_count(part.get(name)) for part in _objects(body))
    return next(filter(None, numbers), None)


def _decoded(text: str) -> object:
    """The value of a JSON text, or the text itself."""
    text_of_json = text.strip()
    if text_of_json[:1] not in ("{", "[", '"') or len(text_of_json) > MAX_READ:
        return text
    try:
        return cast(object, json.loads(text_of_json))
    except (ValueError, RecursionError):
        return text


def _plain(text: str) -> str:
    """The text, or the title of the page that a proxy sends in its place."""
    if re.match(r"\s*<(?:!doctype|html)", text, re.IGNORECASE):
        title = _TITLE.search(text[:MAX_READ])
        return title[1].strip() if title is not None else ""
    return text.strip()


def _whole(body: object) -> str:
    """All of an error body without a known message, as text; "" for an empty one."""
    if body in (None, "", {}, []):
        return ""
    try:
        return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)
    except RecursionError:
        return ""
