"""What a provider says when a conversation does not fit, in whatever words it says it."""

from shepherd.backends.api.overflow.body import error_text
from shepherd.backends.api.overflow.parse import (
    Overflow,
    is_lasting_limit,
    is_out_of_memory,
    is_rate_limit,
    parse_overflow,
    parse_request_limit,
)

__all__ = [
    "Overflow",
    "error_text",
    "is_lasting_limit",
    "is_out_of_memory",
    "is_rate_limit",
    "parse_overflow",
    "parse_request_limit",
]
