"""A home, a project in a git repository, and the settings that count there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shepherd.config.load import load_config
from shepherd.config.settings import Config


@dataclass(frozen=True)
class Places:
    home: Path
    project: Path

    @classmethod
    def in_directory(cls, base: Path) -> "Places":
        places = cls(base / "home", base / "project")
        places.user_file.parent.mkdir(parents=True)
        (places.project / ".git").mkdir(parents=True)
        return places

    @property
    def user_file(self) -> Path:
        return self.home / ".config" / "shepherd" / "config.toml"

    @property
    def project_file(self) -> Path:
        return self.project / ".shepherd.toml"

    def load(
        self,
        env: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        cwd: Path | None = None,
    ) -> Config:
        return load_config(cwd or self.project, {"HOME": str(self.home), **(env or {})}, flags)
