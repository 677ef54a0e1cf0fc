"""Arguments of commands that look like options."""

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

_NEGATIVE_NUMBER = re.compile(r"-\.?\d.*|-(inf|infinity|nan)", re.IGNORECASE)


class ValueCommand(TyperCommand):
    """A command whose last argument is a value, which may be a negative number."""

    def parse_args(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """Take the first negative number, and what follows it, as arguments."""
        place = next((n for n, arg in enumerate(args) if _NEGATIVE_NUMBER.fullmatch(arg)), None)
        if place is None or "--" in args:
            return super().parse_args(ctx, list(args))
        return super().parse_args(ctx, [*args[:place], "--", *args[place:]])
