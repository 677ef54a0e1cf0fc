"""A home and a project with files for agents."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shepherd.config.paths import Paths
from shepherd.config.sections import KnowledgeSection
from shepherd.knowledge.knowledge import Knowledge, load_knowledge
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import parse_rule


@dataclass
class Places:
    """`root` is a git repository, and `cwd` a directory in it; `warnings` are those of `load`."""

    base: Path
    warnings: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        for path in (self.cwd, self.root / ".git", self.config):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def config(self) -> Path:
        return self.home / ".config" / "shepherd"

    @property
    def root(self) -> Path:
        return self.base / "repository"

    @property
    def cwd(self) -> Path:
        return self.root / "part"

    @property
    def paths(self) -> Paths:
        return Paths.from_env({"HOME": str(self.home)})

    def write(self, path: str, text: str) -> Path:
        """Write a file; `~/` is the home, other paths are below the root."""
        target = self.home / path[2:] if path.startswith("~/") else self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def skill(self, folder: str, name: str, description: str = "Does it.", body: str = "") -> Path:
        """Write a skill into a folder of skills."""
        front = f"---\nname: {name}\ndescription: {description}\n---\n"
        return self.write(f"{folder}/{name}/SKILL.md", front + body)

    def load(self, *rules: str, at: Path | None = None, **settings: object) -> Knowledge:
        """The knowledge of a conversation in `cwd`, under the user's `rules`."""
        self.warnings.clear()
        cwd = at or self.cwd
        policy = PermissionPolicy(cwd, user=[parse_rule(rule) for rule in rules])
        section = KnowledgeSection.model_validate(settings)
        return load_knowledge(section, self.paths, cwd, policy, self.warnings.append)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    result = Places(tmp_path.resolve())
    monkeypatch.setenv("HOME", str(result.home))
    return result
