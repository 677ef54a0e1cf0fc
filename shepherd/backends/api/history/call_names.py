"""Ids and names of calls as an API takes them."""

import re
from dataclasses import replace
from hashlib import sha256

from shepherd.backends.api.history.sanitize import sanitize_object
from shepherd.messages import ToolCall

_NAMELESS = "unnamed"


class CallNames:
    """Gives each call of one conversation, in order, an id of its own and a name that is allowed.

    What an id becomes depends on it and on the ids before it, so that a longer conversation
    keeps those of a shorter one.
    """

    def __init__(self, id_form: str, id_length: int, name_form: str) -> None:
        """The forms are regular expressions for the whole; made ids are hexadecimal digits."""
        self._id_form = re.compile(id_form)
        self._id_length = id_length
        self._name_form = re.compile(name_form)
        self._taken: set[str] = set()

    def valid(self, call: ToolCall) -> ToolCall:
        """The call as the API takes it; its arguments are JSON."""
        own = self._id(call.id)
        self._taken.add(own)
        name, arguments = self._name(call.name), sanitize_object(call.arguments)
        if (own, name, arguments) == (call.id, call.name, call.arguments):
            return call
        return replace(call, id=own, name=name, arguments=arguments)

    def _id(self, given: str) -> str:
        if given not in self._taken and self._id_form.fullmatch(given):
            return given
        number = 0
        while (made := _digits(given, number, self._id_length)) in self._taken:
            number += 1
        return made

    def _name(self, given: str) -> str:
        if self._name_form.fullmatch(given):
            return given
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", given)[:64].strip("_")
        return plain or _NAMELESS


def _digits(id: str, number: int, length: int) -> str:
    return sha256(f"{number}:{id}".encode("utf-8", "replace")).hexdigest()[:length]
