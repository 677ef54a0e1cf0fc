"""Assigns fragments to calls by index, id and name."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from shepherd.backends.api.adapter import CallDelta
from shepherd.backends.api.coerce import as_count, as_object, as_text
from shepherd.messages import JsonObject


@dataclass(slots=True)
class _Slot:
    """A call with at least one fragment."""

    key: int
    id: str = ""
    name: str = ""


class CallSlots:
    """Sorts the fragments of one answer's calls.

    A fragment belongs to the call with its index or, without an index, with its id. A different
    name and id, or a name without index and id, begin another call: several servers give every call
    the index 0, or none. Other fragments continue the last call.
    """

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}

    def __bool__(self) -> bool:
        """Whether there is any call."""
        return bool(self._slots)

    def take(self, fragment: JsonObject) -> Iterator[CallDelta]:
        """The delta of one fragment; id and name are sent once."""
        function = as_object(fragment.get("function"))
        own_id, name = as_text(fragment.get("id")), as_text(function.get("name"))
        arguments = _json_text(function.get("arguments"))
        slot = self._slot(as_count(fragment.get("index")), own_id, name)
        first_id, first_name = "" if slot.id else own_id, "" if slot.name else name
        slot.id, slot.name = slot.id or own_id, slot.name or name
        if first_id or first_name or arguments:
            yield CallDelta(slot.key, first_id, first_name, arguments)

    def _slot(self, index: int | None, id: str, name: str) -> _Slot:
        known = self._known(index, id, name)
        if known is None:
            known = _Slot(len(self._slots))
            self._slots.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    def _known(self, index: int | None, id: str, name: str) -> _Slot | None:
        if index is not None:
            slot = self._by_index.get(index)
            return None if slot is None or _is_other(slot, id, name) else slot
        if id:
            result = next((slot for slot in self._slots if slot.id == id), None)
            if result is not None or name:
                return result
        last = self._slots[-1] if self._slots else None
        return None if last is None or (name and last.name) else last


def _is_other(slot: _Slot, id: str, name: str) -> bool:
    return bool(id and name and slot.id and slot.id != id)


def _json_text(arguments: object) -> str:
    """The text to append; some servers send the object itself."""
    if isinstance(arguments, dict):
        return json.dumps(cast(JsonObject, arguments), ensure_ascii=False)
    return as_text(arguments)


_TEXTS = ("text", "summary", "data")


def detail_text(detail: JsonObject) -> str:
    """The readable text of a fragment; encrypted ones have none."""
    return as_text(detail.get("text")) or as_text(detail.get("summary"))


class ReasoningDetails:
    """Joins streamed fragments: neighbours of the same index and type form one detail."""

    def __init__(self) -> None:
        self._details: list[JsonObject] = []

    def __bool__(self) -> bool:
        return bool(self._details)

    def take(self, fragments: list[JsonObject]) -> None:
        for fragment in fragments:
            last = self._details[-1] if self._details else None
            if last is not None and _is_one(last, fragment):
                joined = {
                    name: as_text(last.get(name)) + as_text(fragment.get(name))
                    for name in _TEXTS
                    if name in last or name in fragment
                }
                values = {name: value for name, value in fragment.items() if value is not None}
                self._details[-1] = last | values | joined
            else:
                self._details.append(dict(fragment))

    def merged(self) -> list[JsonObject]:
        """The details to send back."""
        return list(self._details)


def _is_one(last: JsonObject, fragment: JsonObject) -> bool:
    same = all(last.get(name) == fragment.get(name) for name in ("type", "index"))
    return same and "index" in last
