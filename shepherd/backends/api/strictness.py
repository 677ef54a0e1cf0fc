"""What a strict server says of a field that it does not know."""

import re
from collections.abc import Collection

from shepherd.backends.api.lenient import as_objects
from shepherd.messages import JsonObject

REFUSING = frozenset({400, 422})

_FORBIDS = re.compile(
    r"extra[ _](?:inputs?|fields?|forbidden|propert\w+|keys?|param\w*|arguments?)|extraneous"
    r"|additional ?propert|un(?:recogni[sz]ed|known|expected|supported|permitted)"
    r"|(?:not|n't) (?:be )?(?:permitted|allowed|supported?|recogni[sz]ed?|known?|expected)\b",
    re.IGNORECASE,
)


def forbids(said: str) -> bool:
    """Whether an error says that something is not known, not that its value is wrong."""
    return bool(_FORBIDS.search(said))


def refuses_field(said: str, names: Collection[str]) -> bool:
    """Whether an error says that one of these fields is not known."""
    named = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said) for name in names)
    return named and forbids(said)


def fields_of(body: JsonObject) -> set[str]:
    """The names of a request's fields, and of those of its messages."""
    return {*body, *(name for message in as_objects(body.get("messages")) for name in message)}
