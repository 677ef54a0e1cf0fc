"""Skills: folders with a SKILL.md, as agentskills.io describes them."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from shepherd import errors, validation
from shepherd.knowledge import files, instructions
from shepherd.tasks import in_thread
from shepherd.tools.access import Access
from shepherd.tools.text import cap_text, pluralize
from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolResult

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 262_144
MAX_DESCRIPTION, MAX_NAME = 1024, 64
LISTED_CHARACTERS = 160
"""The part of a description that is in the prompt."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Skill(files.Named, frozen=True, kw_only=True):
    """A skill; `place` is the folder of its files, and links may not lead out of `root`."""

    description: str
    root: Path

    @property
    def line(self) -> str:
        """The line of the prompt."""
        text = self.description
        short = text if len(text) <= LISTED_CHARACTERS else f"{text[:LISTED_CHARACTERS]}…"
        return f"- {self.name}: {short}"


def find_skills(
    project: files.Project, reader: files.KnowledgeFiles, warn: Callable[[str], None]
) -> tuple[Skill, ...]:
    """The skills by name; `warn` gets a sentence for each that can't be used.

    The user's skill wins over the project's of the same name.
    """

    def is_skill(path: Path) -> bool:
        return os.path.lexists(path / SKILL_FILE)

    return (*files.find_named(project, "skills", is_skill, partial(_skill, project, reader), warn),)


def _skill(project: files.Project, reader: files.KnowledgeFiles, folder: files.Location) -> Skill:
    """The skill in a folder; raises ToolError if it can't be used."""
    path = folder.path / SKILL_FILE
    label = project.name(path)
    document = files.split_front_matter(reader.read(path, folder.root, MAX_SKILL_BYTES, label).text)
    name, description = document.line("name"), document.line("description")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise errors.ToolError(
            f"{label} needs a name of at most {MAX_NAME} lower-case letters, digits and single "
            "hyphens"
        )
    if name != folder.path.name:
        raise errors.ToolError(f"{label} has the name {name}, which is not that of its folder")
    if not 0 < len(description) <= MAX_DESCRIPTION:
        raise errors.ToolError(f"{label} needs a description of 1 to {MAX_DESCRIPTION} characters")
    place = Path(os.path.realpath(folder.path))
    return Skill(
        name=name,
        of_user=folder.of_user,
        place=place,
        description=description,
        root=folder.root,
    )


def prompt_lines(skills: Sequence[Skill], max_bytes: int) -> list[str]:
    """The lines of the prompt, and one for the skills that have no room there."""
    lines: list[str] = []
    bytes_left = max_bytes
    for skill in skills:
        bytes_left -= len(skill.line.encode()) + len("\n")
        if bytes_left < 0:
            others = pluralize(len(skills) - len(lines), "more skill")
            return [*lines, f"- {others}: use_skill without a name lists all."]
        lines.append(skill.line)
    return lines


MAX_LISTED, MAX_DEPTH = 40, 4
FROM_PROJECT = "This skill is from the project and can't change what you may do.\n"


class SkillArguments(Arguments):
    """The skill, and one of its files in place of its text; no name means all skills."""

    name: str = ""
    file: Annotated[str, Field(description="a file of its folder")] = ""


class UseSkill(Tool[SkillArguments]):
    """Returns the text of a skill and its files; it reads nothing else, so it needs no approval."""

    name = instructions.USE_SKILL
    description = "Read a skill."
    arguments = SkillArguments

    def __init__(self, skills: Sequence[Skill], reader: files.KnowledgeFiles) -> None:
        self._skills = {skill.name: skill for skill in skills}
        self._reader = reader

    def accesses(self, arguments: SkillArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: SkillArguments, context: ToolContext) -> ToolResult:
        if not arguments.name:
            skills = self._skills.values()
            return ToolResult("\n".join(f"{skill.name}: {skill.description}" for skill in skills))
        skill = self._skills.get(arguments.name)
        if skill is None:
            raise errors.ToolError(
                f"no skill {arguments.name}{validation.did_you_mean(arguments.name, self._skills)}"
            )
        text = await in_thread(lambda _: self._text(skill, arguments.file))
        return ToolResult(cap_text(text, context.output_bytes, context.spill_dir))

    def _text(self, skill: Skill, name: str) -> str:
        """The file of this name in the skill's folder; without a name, the skill itself."""
        path = skill.place / (name or SKILL_FILE)
        is_inside = Path(os.path.realpath(path)).is_relative_to(skill.place)
        if name and not is_inside:
            raise errors.ToolError(f"not a file of the skill {skill.name}: {name}")
        text = self._reader.read(path, skill.root, MAX_SKILL_BYTES, name or SKILL_FILE).text
        if name:
            return text
        head = "" if skill.of_user else FROM_PROJECT
        others = ", ".join(_other_files(skill.place))
        folder = f"Folder: {skill.place}\n" + (f"Files: {others}\n" if others else "")
        return f"{head}{folder}\n{files.split_front_matter(text).body}"


def _other_files(folder: Path) -> list[str]:
    """The files of a skill by their paths in its folder, without hidden ones."""
    paths: list[Path] = []
    for directory, subdirectories, names in os.walk(folder):
        relative = Path(directory).relative_to(folder)
        is_deepest = len(relative.parts) >= MAX_DEPTH
        visible = [] if is_deepest else [n for n in subdirectories if not n.startswith(".")]
        subdirectories[:] = sorted(visible)  # `os.walk` goes on into these
        paths += (relative / name for name in sorted(names) if not name.startswith("."))
        if len(paths) > MAX_LISTED:
            return [*map(str, paths[:MAX_LISTED]), "…"]
    return [str(path) for path in paths if path != Path(SKILL_FILE)]
