"""What the tools that ask providers are called."""

import re
from collections.abc import Iterable

PREFIX = "ask_"


def tool_names(providers: Iterable[str]) -> dict[str, str]:
    """A tool's name for each of all providers, by the provider's name.

    Every API takes it. Two names that differ in signs only get a number behind: always the same
    one, whichever of the providers answers.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for provider in sorted(providers):
        base = name = PREFIX + re.sub(r"[^a-z0-9]", "_", provider)
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names[provider] = name
    return names
