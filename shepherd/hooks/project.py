"""The hooks of a project: they run only after the user has accepted exactly them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from shepherd.config.acceptance import AcceptanceStore, Proposal
from shepherd.config.files import read_text
from shepherd.config.paths import project_hooks_file
from shepherd.config.sections import NO_HOOKS, Hook, HooksSection
from shepherd.errors import ConfigError
from shepherd.validation import problems_of

MAX_BYTES = 65_536
HOW_TO_ACCEPT = "`shepherd hooks list` shows them, and `shepherd hooks accept` lets them run"


@dataclass(frozen=True, slots=True)
class ProjectHooks:
    """The hooks in a project's file."""

    file: Path
    section: HooksSection

    @property
    def proposal(self) -> Proposal:
        """Everything that decides what runs."""
        content = {"file": str(self.file), **self.section.model_dump()}
        return Proposal("hooks", self.file.parent, content)


def load_project_hooks(cwd: Path) -> ProjectHooks | None:
    """The hooks of the project of `cwd`, accepted or not; raises ConfigError for a broken file."""
    file = project_hooks_file(cwd)
    if file is None:
        return None
    try:
        data = tomllib.loads(read_text(file, MAX_BYTES))
        return ProjectHooks(file.resolve(), HooksSection.model_validate(data))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ConfigError(f"{file}: not a file of hooks: {problems_of(error)}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not a file of hooks: {error}") from error


def accepted_hooks(cwd: Path, store: AcceptanceStore) -> tuple[HooksSection, str]:
    """The project's hooks that may run, and a sentence for the user if they may not."""
    try:
        project = load_project_hooks(cwd)
        if project is None or project.section == NO_HOOKS:
            return NO_HOOKS, ""
        if store.is_accepted(project.proposal):
            return project.section, ""
    except ConfigError as error:
        return NO_HOOKS, f"The project's hooks do not run: {error}"
    return NO_HOOKS, f"The hooks in {project.file} do not run: {HOW_TO_ACCEPT}."


def joined(own: HooksSection, more: HooksSection) -> HooksSection:
    """All hooks of both, those of `own` first."""
    names = HooksSection.model_fields
    return HooksSection(**{name: [*getattr(own, name), *getattr(more, name)] for name in names})


def description(section: HooksSection) -> str:
    """The hooks, a line each."""
    lines = [
        f"{event}: {hook.command}  (match {hook.match}, {hook.timeout:g} s{_variables(hook)})"
        for event in HooksSection.model_fields
        for hook in getattr(section, event)
    ]
    return "\n".join(lines)


def _variables(hook: Hook) -> str:
    return f", gets {', '.join(hook.env)}" if hook.env else ""
