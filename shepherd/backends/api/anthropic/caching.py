"""Marks for the prompt cache: what is read again with the next request is read from there.

The cache holds whole prefixes (tools, then system, then messages), each up to a mark. The end of
the conversation is marked, to be found by the next request, and so is where the last request
ended, which finds what that one left, however long the answer between was.
"""

from collections.abc import Sequence

from shepherd.messages import JsonObject

MOST_MARKS = 4
"""How many marks the API takes in a request."""

_MARK = {"type": "ephemeral"}


def mark(
    tools: Sequence[JsonObject], system: Sequence[JsonObject], messages: Sequence[JsonObject]
) -> None:
    """Put the marks into a request's parts: last tool, system, the last two turns of the user."""
    users = [message["content"] for message in messages if message["role"] == "user"]
    for blocks in (tools, system, *users[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = dict(_MARK)
