"""OpenRouter's `reasoning_details`: what a model behind it wants back of its reasoning."""

from shepherd.backends.api.lenient import as_text
from shepherd.messages import JsonObject

_TEXTS = ("text", "summary", "data")


def detail_text(detail: JsonObject) -> str:
    """What there is to read in a fragment; encrypted ones have nothing."""
    return as_text(detail.get("text")) or as_text(detail.get("summary"))


class ThoughtDetails:
    """Puts streamed fragments together: neighbours of one index and type are one."""

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
                given = {name: value for name, value in fragment.items() if value is not None}
                self._details[-1] = last | given | joined
            else:
                self._details.append(dict(fragment))

    def merged(self) -> list[JsonObject]:
        """The details as they go back."""
        return list(self._details)


def _is_one(last: JsonObject, fragment: JsonObject) -> bool:
    same = all(last.get(name) == fragment.get(name) for name in ("type", "index"))
    return same and "index" in last
