"""Recognises a provider's error for a conversation that does not fit, whatever its words."""

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
