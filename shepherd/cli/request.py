"""What a command line asks for, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.conversation.session_start import SessionStart

if TYPE_CHECKING:
    from shepherd.config.provider_book import Ephemeral


@dataclass(frozen=True, slots=True)
class Launch:
    """Which frontend to start and how; `overrides` are settings by `section.key`.

    `given` is a provider that only this run knows. `connect` is the URL of a shared conversation,
    `api_key` its key. `images` go with the prompt.
    """

    overrides: Mapping[str, object] = field(default_factory=dict[str, object])
    prompt: str | None = None
    json_lines: bool = False
    start: SessionStart = field(default_factory=SessionStart)
    server: bool = False
    insecure: bool = False
    given: "Ephemeral | None" = None
    cliserver: bool = False
    connect: str = ""
    api_key: str = ""
    images: Sequence[Path] = ()
