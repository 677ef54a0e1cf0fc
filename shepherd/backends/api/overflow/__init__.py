"""What a provider says when a conversation does not fit, in whatever words it says it."""

from shepherd.backends.api.overflow.body import error_text
from shepherd.backends.api.overflow.parse import Overflow, is_rate_limit, parse_overflow

__all__ = ["Overflow", "error_text", "is_rate_limit", "parse_overflow"]
