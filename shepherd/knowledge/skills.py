"""Skills: folders with a SKILL.md, as agentskills.io describes them."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.knowledge.files import KnowledgeFiles
from shepherd.knowledge.front_matter import split_front_matter
from shepherd.knowledge.project import Folder, Kind, Project, find_named
from shepherd.tools.text import pluralize

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 262_144
MAX_DESCRIPTION, MAX_NAME = 1024, 64
LISTED_CHARACTERS = 160
"""The part of a description that is in the prompt."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill; its files lie in `folder`, and links in it may not lead out of `root`."""

    name: str
    description: str
    folder: Path
    root: Path
    of_user: bool

    @property
    def place(self) -> Path:
        """Its folder, without links."""
        return self.folder

    @property
    def line(self) -> str:
        """The line of the prompt."""
        text = self.description
        short = text if len(text) <= LISTED_CHARACTERS else f"{text[:LISTED_CHARACTERS]}…"
        return f"- {self.name}: {short}"


def find_skills(
    project: Project, files: KnowledgeFiles, warn: Callable[[str], None]
) -> tuple[Skill, ...]:
    """The skills by name; `warn` gets a sentence for each that can't be used.

    The user's skill wins over the project's of the same name.
    """
    kind = Kind(
        "skills",
        "skill",
        lambda path: os.path.lexists(path / SKILL_FILE),
        lambda path, folder, root: _skill(path, folder, root, project, files),
    )
    return tuple(find_named(project, kind, warn).values())


def _skill(
    directory: Path, folder: Folder, root: Path, project: Project, files: KnowledgeFiles
) -> Skill:
    path = directory / SKILL_FILE
    label = project.name(path)
    document = split_front_matter(files.read(path, root, MAX_SKILL_BYTES, label).text)
    name, description = document.line("name"), document.line("description")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ToolError(
            f"{label} needs a name of at most {MAX_NAME} lower-case letters, digits and single "
            "hyphens"
        )
    if name != directory.name:
        raise ToolError(f"{label} has the name {name}, which is not that of its folder")
    if not 0 < len(description) <= MAX_DESCRIPTION:
        raise ToolError(f"{label} needs a description of 1 to {MAX_DESCRIPTION} characters")
    resolved = Path(os.path.realpath(directory))
    return Skill(name, description, resolved, root, folder.of_user)


def prompt_lines(skills: Sequence[Skill], max_bytes: int) -> list[str]:
    """The lines of the prompt, and one for the skills that have no room there."""
    lines: list[str] = []
    for number, skill in enumerate(skills):
        max_bytes -= len(skill.line.encode()) + 1
        if max_bytes < 0:
            rest = pluralize(len(skills) - number, "more skill")
            return [*lines, f"- {rest}: use_skill without a name lists all."]
        lines.append(skill.line)
    return lines
