"""The phrases by which providers say that a prompt is too long, and where their numbers stand.

Sources of each are in the tests. All searches ignore case.
"""

import re
from collections.abc import Sequence

_FLAGS = re.IGNORECASE

NUMBER = (
    r"(?<![\w.,])([0-9]{1,3}(?:[,.'_\u00a0\u202f][0-9]{3})+|[0-9]{1,12})"
    r"(?:\.0)?(?!\w|[,.][0-9])"
)
"""A number, with or without separators between its thousands; not part of another, not `128k`."""


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" for p in patterns), _FLAGS)


def _numbers(*patterns: str) -> Sequence[re.Pattern[str]]:
    return [re.compile(p.replace("#", NUMBER), _FLAGS) for p in patterns]


RATE_LIMIT = _any(
    r"rate[ _-]?limit",
    r"too[ _]many[ _]requests",
    r"\bquota",
    r"per[ _](?:minute|min|hour|day)\b",
    r"\bthrottl",
    r"resource[ _]exhausted",
    r"please wait before trying",
    r"server[ _]busy",
    r"usage limit",
)

LASTING_LIMIT = _any(
    r"per[ _-]?(?:hour|day|week|month)(?![a-z])",
    r"per(?:Hour|Day|Week|Month)(?:[A-Z]|\b)",
    r"\b(?:hourly|daily|weekly|monthly)\b.{0,30}(?:limit|quota|allowance|usage)",
    r"\((?:rpd|tpd)\)",
    r"\blimit: ?0\b",
    r"\bspend(?:ing)? limit",
    r"billing cycle",
)
"""Limits that still apply after a pause of seconds."""

OUT_OF_MEMORY = _any(
    r"requires more (?:system |gpu |video )?memory",
    r"out[ _-]?of[ _-]?memory",
    r"(?:not enough|insufficient) (?:\w+ )?memory",
    r"(?:can(?:no|')t|unable to|failed to) allocate\b",
    r"memory allocation (?:has )?failed",
)

OVERFLOW = _any(
    r"maximum (?:context|prompt) length",
    r"context[ _]?(?:length|window|size)[ _]?(?:limit )?(?:has been )?exceeded",
    r"exceed_context_size",
    r"exceeds? (?:the |this |our )?(?:model'?s? )?(?:available |max(?:imum)? )?"
    r"context (?:size|length|window|limit)",
    r"context window exceeds limit",
    r"the context is full",
    r"prompt (?:is )?too long",
    r"prompt exceeds max(?:imum)? length",
    r"prompt ?超长",
    r"input is too long for (?:the )?requested model",
    r"input token count\b.{0,30}(?:exceeds|supports up to|but model)",
    r"prompt token count\b.{0,30}exceeds the limit",
    r"input tokens exceed the configured limit",
    r"longer than the (?:model'?s? )?(?:context length|maximum model length)",
    r"exceeds the maximum allowed (?:input )?length",
    r"too long to fit into the model",
    r"reduce the length of (?:the |your |either )?(?:input |prompt|messages|one)",
    r"inputs`? tokens \+ `?max_new_tokens`? must be",
    r"inputs`? must have less than",
    r"exceeded model token limit",
    r"too large for model with",
    r"tokens to keep from the initial prompt is greater than",
    r"tokens when context (?:the )?overflows",
    r"n_keep\b.{0,20}>=? ?n_ctx",
    r"mid-generation context overflow",
    r"too many tokens: (?:total number|size limit|the total|minimal context|multi-hop)",
    r"tokens in the prompt cannot exceed",
    r"range of input length should be",
    r"configured context size is",
    r"(?:should not exceed|exceeds) max_(?:num_tokens|seq_len|input_len)",
    r"prompt length .{0,20}exceeds maximum input length",
    r"request[_ ]too[_ ]large",
    r"request entity too large",
    r"payload too large",
    r"request payload size exceeds the limit",
    r"request exceeds the maximum (?:allowed )?(?:size|number of bytes)",
    r"'(?:messages|input|contents)': array too long",
    r"total length of all messages is too long",
)

SUMS = _numbers(r"# \+ # > #")
"""Prompt, completion and limit in one."""

LIMIT = _numbers(
    r"context (?:length|window|size|limit)[ :]*(?:of |is )?(?:only )?\(?#",
    r"maximum (?:prompt|model) length[ :]*(?:of |is )?\(?#",
    r"# tokens > # max(?:imum)?",
    r"maximum number of tokens allowed \(?#",
    r"configured limit of #",
    r"maximum allowed (?:input )?length (?:of )?\(?#",
    r"max_new_tokens`? must be <=? ?#",
    r"must have less than #",
    r"model token limit: #",
    r"exceeds the limit of #",
    r"too large for model with #",
    r"limit is #",
    r"limit for this model is #",
    r"cannot exceed #",
    r"input length should be \[[0-9]+, ?#",
    r"supports up to #",
    r"max_(?:num_tokens|seq_len|input_len) \(#",
    r"maximum input length \(#",
    r"n_ctx[ :(]+#",
)
"""The last number of a match counts."""

PROMPT = _numbers(
    r"resulted in #",
    r"(?:request|prompt|input) \(# tokens",
    r"(?:request|prompt) (?:has|contains) # (?:input )?tokens",
    r"token count (?:is |of )?\(?#",
    r"prompt is too long: #",
    r"prompt \((?:total )?length #",
    r"(?:input|prompt) length \(?#",
    r"given: #",
    r"current length is #",
    r"keep the first #",
    r"n_keep[ :(]+#",
    r"# tokens from the input messages",
)

TOTAL = _numbers(
    r"you requested (?:about |a total of )?# tokens",
    r"\(requested: #",
    r"received #",
    r"requested tokens \(#",
)
"""Prompt and completion together, or the prompt if no completion is mentioned."""

OUTPUT = _numbers(
    r"# (?:tokens )?(?:in|for) the (?:completion|output)",
    r"tokens'? .{0,40}is too large: #",
    r"# `?max_new_tokens",
    r"requested # output tokens",
)

LIMIT_AND_REQUEST = _numbers(r"limit:? #,? (?:used:? [0-9,.]+,? )?requested:? #")
"""The limit of a minute or a day, and the size of one request."""

OVER = _numbers(r"(?:exceeded|exceeded max(?:imum)? context length|full) by # tokens")


def first(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    """The number that the first matching pattern captures, None without a match."""
    for pattern in patterns:
        match = pattern.search(text)
        if match is not None:
            return to_int(match[match.re.groups])
    return None


def to_int(number: str) -> int:
    """The value of a number as `NUMBER` matches it."""
    return int(re.sub(r"[^0-9]", "", number))
