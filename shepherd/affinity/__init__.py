"""Sends a conversation to the replica that has its beginning in its cache; no I/O."""

from shepherd.affinity.prefix import Prefix, body_prefix, prefix_of, with_response
from shepherd.affinity.router import AffinityRouter, Balance, Choice, PrefixIndex

__all__ = [
    "AffinityRouter",
    "Balance",
    "Choice",
    "Prefix",
    "PrefixIndex",
    "body_prefix",
    "prefix_of",
    "with_response",
]
