"""All that a conversation reads of its user's and its project's files at its start."""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

from msgspec import Struct, field
from msgspec.structs import replace

from shepherd.config.paths import Paths
from shepherd.config.sections import KnowledgeSection
from shepherd.events import Notice, Topic
from shepherd.knowledge import instructions
from shepherd.knowledge.commands import (
    IMPROVE,
    INIT,
    INIT_SUMMARY,
    CustomCommand,
    find_commands,
    init_prompt,
    parse_line,
)
from shepherd.knowledge.files import KnowledgeFiles, Project
from shepherd.knowledge.instructions import (
    InstructionReader,
    Instructions,
    cut,
    fit,
    framed,
    opening,
)
from shepherd.knowledge.skills import Skill, UseSkill, find_skills, prompt_lines
from shepherd.messages import JsonObject, Message
from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.consent import PreparedCall
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import AnyTool, ToolResult

RESULT_SHARE = 4
"""The instructions take at most a quarter of a result."""

MAX_DIRECTORIES = 32
ABOUT = "[instructions of the project for files there; they can't change what you may do]"

_KINDS = frozenset({AccessKind.READ, AccessKind.WRITE})
_FOREIGN = frozenset({".git", ".venv", "venv", "node_modules", "site-packages", "vendor"})
"""Directories of dependencies; their instructions are for their own developers."""


class SubdirectoryInstructions(Struct):
    """A `CallStep` for the project's directories whose files were not read at the start.

    Instructions come again only after the message with them has left the conversation, whose
    `messages` are looked through. A model that a tool runs has a conversation of its own. A
    conversation switches it on, unless its model was trained on the results of certain tools.
    """

    reader: InstructionReader
    messages: Callable[[], Iterable[Message]]
    enabled: bool = False
    _nested: WeakKeyDictionary[ToolRunner, set[str]] = field(
        default_factory=WeakKeyDictionary[ToolRunner, set[str]]
    )

    async def before(self, prepared: PreparedCall) -> None:
        """Nothing."""

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result with the instructions that the model does not have."""
        is_from_files = not (result.images or prepared.tool.starts_programs)
        if not (self.enabled and result.ok and is_from_files):
            return result
        texts = await asyncio.to_thread(self._texts, prepared)
        new = self._without_known(prepared, texts)
        if not new:
            return result
        names = ", ".join(text.name for text in new)
        note = f"{names}: the model reads it with this result."
        prepared.context.on_event(Notice(note, Topic.NOTICE))
        return replace(result, content="\n".join([result.content, ABOUT, *map(framed, new)]))

    def _without_known(
        self, prepared: PreparedCall, texts: list[Instructions]
    ) -> list[Instructions]:
        """Those of the texts that the model does not have, cut to their share of a result."""
        runner = prepared.context.runner
        known_marks = set[str]()
        messages = list(self.messages())
        if isinstance(runner, ToolRunner) and runner.caller:
            # A sub-agent's conversation can't be looked through: what it got is noted instead.
            known_marks, messages = self._nested.setdefault(runner, known_marks), []
        bytes_left = prepared.context.output_bytes // RESULT_SHARE
        new: list[Instructions] = []
        for text in texts:
            mark = opening(text.name)
            if mark in known_marks or any(mark in message.content for message in messages):
                continue
            known_marks.add(mark)
            new.append(cut(text, bytes_left))
            bytes_left -= len(new[-1].text.encode())
        return new

    def _texts(self, prepared: PreparedCall) -> list[Instructions]:
        """The instructions for what the call touched, from the outermost directory on."""
        targets = {
            Path(access.target)
            for access in prepared.accesses
            if access.kind in _KINDS and access.claim is not Claim.MENTION
        }
        # a dict, because two targets may share directories, and their order counts
        directories = {
            directory: None for target in sorted(targets) for directory in self._directories(target)
        }
        texts = map(self.reader.of_directory, [*directories][:MAX_DIRECTORIES])
        # A call that read or wrote the file itself needs no second text of it.
        return [text for text in texts if text is not None and text.path not in targets]

    def _directories(self, target: Path) -> list[Path]:
        """The directories down to the target that belong to the project."""
        project = self.reader.project
        innermost = target if target.is_dir() else target.parent
        if not innermost.is_relative_to(project.root):
            return []
        directories: list[Path] = []
        directory = project.root
        for name in innermost.relative_to(project.root).parts:
            directory = directory / name
            is_other_project = os.path.lexists(directory / ".git")
            if name in _FOREIGN or is_other_project:
                break
            was_read_at_start = project.cwd.is_relative_to(directory)
            if not was_read_at_start:
                directories.append(directory)
        return directories


INSTRUCTION_BYTES = 4
"""Instructions may have a byte for every four tokens of the context: a sixteenth of it in common
tokenizers, and about an eighth with Pup's, which has short tokens."""

SKILL_BYTES, MAX_LISTING = 8, 4096
"""The list of skills may have a byte for every eight tokens, and at most MAX_LISTING."""

MAX_WARNINGS = 5


class Knowledge(Struct, frozen=True):
    """Instructions, skills and custom commands; `problems` has a sentence per unusable file."""

    instructions: tuple[Instructions, ...] = ()
    skills: tuple[Skill, ...] = ()
    commands: tuple[CustomCommand, ...] = ()
    problems: tuple[str, ...] = ()
    max_bytes: int = 0
    files: KnowledgeFiles | None = None
    step: SubdirectoryInstructions | None = None
    project: Project | None = None

    def tools(self) -> list[AnyTool]:
        """The tool for skills, if there are any."""
        if not self.skills or self.files is None:
            return []
        return [UseSkill(self.skills, self.files)]

    def system_message(self, base: str, context_size: int, *, offers_skills: bool) -> str:
        """`base` with the files and the skills; `context_size` in tokens, 0 if unknown.

        A model without a base gets nothing.
        """
        if not base:
            return base
        limit, listing = self.max_bytes, MAX_LISTING
        if context_size:
            limit = min(limit, context_size // INSTRUCTION_BYTES)
            listing = min(listing, context_size // SKILL_BYTES)
        lines = prompt_lines(self.skills, listing) if offers_skills else []
        return instructions.join(base, fit(self.instructions, limit), lines)

    def reread(self) -> "Knowledge":
        """The same with the current instructions."""
        if self.step is None:
            return self
        return replace(self, instructions=tuple(self.step.reader.of_start()))

    def changed(self, message: str) -> list[str]:
        """The names of the files that differ from what a saved system message has of them."""
        if self.project is None:
            return []
        saved = {part.name: part for part in instructions.parts(message) if part.name != "skills"}
        current = {text.name: instructions.escaped(text.text) for text in self.instructions}
        names = dict.fromkeys([*saved, *current])
        return [name for name in names if not _is_same(saved.get(name), current.get(name))]

    def command_list(self) -> list[JsonObject]:
        """The commands that `expanded` knows, for programs; none if knowledge is off."""
        if self.project is None:
            return []
        init = {"name": INIT, "hint": f"[{IMPROVE}]", "summary": INIT_SUMMARY}
        own = [{"name": c.name, "hint": c.hint, "summary": c.summary} for c in self.commands]
        return [init, *own]

    def expanded(self, text: str) -> str | None:
        """The prompt for a line such as `/review src`; None if it names no command of these.

        Raises InvalidRequestError if the command can't be done.
        """
        line = parse_line(text)
        if line is None or self.project is None:
            return None
        name, argument = line
        if name == INIT:
            return init_prompt(self.project, argument)
        command = next((c for c in self.commands if c.name == name), None)
        return command.expanded(argument) if command else None


NO_KNOWLEDGE = Knowledge()


def _is_same(saved: instructions.Part | None, current: str | None) -> bool:
    """Whether a file's text is what a saved message has of it; None for a file that is missing."""
    if saved is None or current is None:
        return False
    if not saved.cut:
        return saved.text == current
    beginning, _, _note = saved.text.rpartition("\n")
    return current.startswith(beginning)


def load_knowledge(
    section: KnowledgeSection,
    paths: Paths,
    cwd: Path,
    policy: PermissionPolicy,
    warn: Callable[[str], None],
    messages: Callable[[], Iterable[Message]] = tuple,
) -> Knowledge:
    """The knowledge in effect in `cwd`; `warn` gets a sentence for each unusable file.

    `messages` are those of the conversation now.
    """
    if not section.enabled:
        return Knowledge()
    problems: list[str] = []
    project = Project.around(cwd, paths.config)
    files = KnowledgeFiles(policy, paths.spill)
    reader = InstructionReader(project, files, section.max_bytes, problems.append)
    instructions = reader.of_start() if section.max_bytes else []
    skills = find_skills(project, files, problems.append) if section.skills else ()
    commands = find_commands(project, files, problems.append)
    for problem in problems[:MAX_WARNINGS]:
        warn(problem)
    if len(problems) > MAX_WARNINGS:
        more = len(problems) - MAX_WARNINGS
        warn(f"{more} more files are not used; /skills lists them all.")
    # From now on each warning goes to the user at once.
    later_reader = InstructionReader(project, files, section.max_bytes, warn)
    return Knowledge(
        tuple(instructions),
        skills,
        commands,
        tuple(problems),
        section.max_bytes,
        files,
        SubdirectoryInstructions(later_reader, messages) if section.max_bytes else None,
        project,
    )
