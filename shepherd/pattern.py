"""Regular expressions that are compiled when they are first used."""

import re
from typing import Any, AnyStr, Generic, cast


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but an error in the expression shows at the first use.

    The result has the methods and attributes of a pattern, and is not of the type `re.Pattern`.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)  # found without this method from here on
        return value
