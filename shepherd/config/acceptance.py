"""The commands of a project's files that the user has accepted, by their hash.

A project's file comes with code that others wrote, so a command in it runs only after the user
has seen and accepted exactly this command. Any change of the command, or of the directory, needs
another acceptance.
"""

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from shepherd.config import files, section
from shepherd.errors import ConfigError

MAX_BYTES = 1_048_576


class Proposal(Struct, frozen=True):
    """Something that a project's file wants to run: a `kind` such as `hook`, and all its settings.

    `directory` is the project's. `content` must hold everything that decides what runs.
    """

    kind: str
    directory: Path
    content: Mapping[str, object]

    @property
    def digest(self) -> str:
        """The hash of the whole proposal."""
        parts = [self.kind, str(self.directory.resolve()), dict(self.content)]
        text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


class _Accepted(section.Section):
    """The file: a description of what was accepted, by its hash."""

    accepted: dict[str, str] = {}


class AcceptanceStore(Struct, frozen=True):
    """A private file of hashes; `path` need not exist yet."""

    path: Path

    def is_accepted(self, proposal: Proposal) -> bool:
        """Whether the user accepted exactly this; raises ConfigError if the file is broken."""
        return proposal.digest in self._load().accepted

    def accept(self, proposal: Proposal, description: str) -> None:
        """Record the user's yes; `description` helps a reader of the file. Raises ConfigError."""
        self._change(proposal.digest, description)

    def withdraw(self, proposal: Proposal) -> None:
        """Remove an acceptance, if there is one; raises ConfigError."""
        self._change(proposal.digest, None)

    def _change(self, digest: str, description: str | None) -> None:
        """Write the file with this description of the digest, or without it for None."""
        try:
            with files.exclusive(self.path):
                accepted = {k: v for k, v in self._load().accepted.items() if k != digest}
                if description is not None:
                    accepted[digest] = description
                files.write_private(self.path, json.dumps({"accepted": accepted}, indent=2))
        except OSError as error:
            raise ConfigError(f"{self.path}: can't be written: {error}") from error

    def _load(self) -> _Accepted:
        """The file's content; a file that others could have written is refused."""
        try:
            if self.path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigError(
                    f"{self.path}: others can write to it; run: chmod 600 {self.path}"
                )
            text = files.read_text(self.path, MAX_BYTES)
        except FileNotFoundError:
            return _Accepted()
        try:
            return _Accepted.model_validate(json.loads(text))
        except (ValueError, RecursionError) as error:  # no JSON, or not of this form
            message = f"{self.path}: not a list of accepted commands; repair or delete the file"
            raise ConfigError(message) from error
