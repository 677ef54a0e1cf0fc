"""Makes ids and names of calls valid for an API."""

import re
from dataclasses import replace
from hashlib import sha256

from shepherd.backends.api.history.sanitize import sanitize_object
from shepherd.messages import ToolCall

_NAMELESS = "unnamed"


class CallNames:
    """Gives each call of one conversation, in order, a unique id and a valid name.

    A new id depends only on the old one and on the ids before it. A longer conversation therefore
    keeps the ids of a shorter one.
    """

    def __init__(self, id_form: str, id_length: int, name_form: str) -> None:
        """The forms are regular expressions for full matches; new ids are hexadecimal digits."""
        self._id_form = re.compile(id_form)
        self._id_length = id_length
        self._name_form = re.compile(name_form)
        self._used_ids: set[str] = set()

    def valid(self, call: ToolCall) -> ToolCall:
        """The call with a valid id and name; its arguments are valid JSON."""
        own = self._id(call.id)
        self._used_ids.add(own)
        name, arguments = self._name(call.name), sanitize_object(call.arguments)
        if (own, name, arguments) == (call.id, call.name, call.arguments):
            return call
        return replace(call, id=own, name=name, arguments=arguments)

    def _id(self, call_id: str) -> str:
        if call_id not in self._used_ids and self._id_form.fullmatch(call_id):
            return call_id
        number = 0
        while (made := _digits(call_id, number, self._id_length)) in self._used_ids:
            number += 1
        return made

    def _name(self, name: str) -> str:
        if self._name_form.fullmatch(name):
            return name
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64].strip("_")
        return plain or _NAMELESS


def _digits(id: str, number: int, length: int) -> str:
    return sha256(f"{number}:{id}".encode("utf-8", "replace")).hexdigest()[:length]
