"""Protected paths that don't exist, and protected links: no mount can hold them."""

import os
from contextlib import suppress
from pathlib import Path

from shepherd.tools.sandbox.boxes.box import Report
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.view.toolchains import HOME_STARTUP, real

_MAX_NAMES = 1000


class Watch:
    """Undoes what a command made in the place of such paths, when it has ended."""

    def __init__(self, profile: Profile) -> None:
        """Remember how things are before the command."""
        root, home = real(profile.root), real(profile.home)
        paths = [*profile.protected]
        if home.is_relative_to(root):
            paths += [home / name for name in HOME_STARTUP]
        places = [real(path.parent) / path.name for path in paths]
        self._missing = [place for place in places if not os.path.lexists(place)]
        self._links = {place: place.readlink() for place in places if place.is_symlink()}

    def undo(self, report: Report) -> None:
        """Move aside what was made, restore links, and report both. Raises OSError."""
        for place in self._missing:
            if real(place.parent) == place.parent and os.path.lexists(place):
                _move_aside(place, report)
        for place, target in self._links.items():
            if real(place.parent) != place.parent or _link(place) == target:
                continue
            if os.path.lexists(place):
                _move_aside(place, report)
            place.symlink_to(target)


def _link(place: Path) -> Path | None:
    with suppress(OSError):
        return place.readlink()
    return None


def _move_aside(place: Path, report: Report) -> None:
    names = (place.with_name(f"{place.name}.refused-{n}") for n in range(1, _MAX_NAMES))
    aside = next(name for name in names if not os.path.lexists(name))
    place.rename(aside)
    text = f"the sandbox refused to make {place.name}: it was moved to {aside.name}"
    report(Refusal(Refused.WRITE, text, str(place)))
