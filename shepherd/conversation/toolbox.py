"""The tools of a conversation, the offer for a model, and the rules."""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from shepherd.backends.base import ModelInfo
from shepherd.config import acceptance, secrets, sections
from shepherd.config.paths import Paths, project_hooks_file, project_mcp_files
from shepherd.config.settings import Config
from shepherd.conversation.session_start import Notices
from shepherd.hooks import Hooks, accepted_hooks, joined
from shepherd.knowledge.knowledge import NO_KNOWLEDGE, Knowledge, load_knowledge
from shepherd.mcp.hub import hub_of
from shepherd.mcp.servers import all_servers
from shepherd.memory.memory import MIB, ConversationArchive, Memory
from shepherd.memory.store import OWN_TOOLS, Place
from shepherd.messages import ToolSpec
from shepherd.models import BUILTIN_TOOLS
from shepherd.plugins import Group, Plugins
from shepherd.session import Session
from shepherd.tasks import in_thread_to_end
from shepherd.tools import consent, deferred, plan
from shepherd.tools.access import READ_FILE, Access, AccessKind
from shepherd.tools.function import add_extensions
from shepherd.tools.layer.patch import rescue, rescue_killed
from shepherd.tools.layer.shared import SharedLayer
from shepherd.tools.memory import memory_tools
from shepherd.tools.permissions.approval import Approver, DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy, own_output
from shepherd.tools.permissions.rules import Decision, PermissionStore, Rule, check_pattern
from shepherd.tools.registry import ToolRegistry, builtin_tools
from shepherd.tools.runner import ToolRunner
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.shell.background import BackgroundCommands
from shepherd.tools.tool import AnyTool, ToolContext
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.store import UndoLimits

if TYPE_CHECKING:
    from shepherd.mcp.hub import ServerHub


class Workspace(Struct, frozen=True):
    """The environment of a conversation: its directory, tools, rules, sandbox and memory."""

    paths: Paths
    cwd: Path
    policy: PermissionPolicy
    sandbox: Sandbox
    registry: ToolRegistry
    memory: Memory | None = None
    servers: "ServerHub | None" = None
    steps: tuple[consent.CallStep, ...] = ()
    knowledge: Knowledge = NO_KNOWLEDGE
    undo: UndoKeeper | None = None
    hooks: Hooks | None = None
    background: BackgroundCommands = field(default_factory=BackgroundCommands)
    review: SharedLayer = field(default_factory=SharedLayer)

    async def aclose(self) -> None:
        """End the background commands and the MCP servers."""
        self.policy.uses.save()
        await self.background.aclose(self.paths.patches)
        await self.end_review()
        if self.servers is not None:
            await self.servers.aclose()

    async def end_review(self) -> str:
        """Keep what waits in the layer of the mode `review`; returns a sentence about that."""
        layer = self.review.layer
        if layer is None:
            return ""
        sentence = await in_thread_to_end(lambda: rescue(layer, self.paths.patches))
        await self.review.drop()
        return sentence

    def tool_runner(
        self,
        config: Config,
        approver: Approver | None = None,
        registry: ToolRegistry | None = None,
        steps: Sequence[consent.CallStep] = (),
    ) -> ToolRunner:
        """A runner of the tools in `registry`, by default all of the workspace.

        Without an approver, calls that need approval are denied. `steps` are nearer to the call
        than those of the workspace.
        """
        return ToolRunner(
            registry or self.registry,
            self.policy,
            approver or DenyingApprover(),
            structs.replace(
                tool_context(config, self.paths, self.cwd, self.sandbox),
                background=self.background,
                review=self.review,
            ),
            (*self.steps, *steps),
            self.undo,
        )


def build_workspace(
    config: Config, paths: Paths, cwd: Path, notices: Notices, session: Callable[[], Session]
) -> Workspace:
    """The workspace of one conversation in `cwd`; raises ConfigError if its rules are broken.

    `session` returns the one that the conversation is in.
    """
    # files of the memory are not touched yet
    saves = config.memory.enabled and config.terminal.save_sessions
    max_bytes = config.memory.max_mib * MIB
    memory = Memory(paths.memory_file, notices.tell, max_bytes=max_bytes) if saves else None
    registry = build_registry(config)
    if memory is not None and config.memory.tools != "off":
        _add_tools(registry, config, memory_tools(memory, Place.of(cwd)))
    policy = build_policy(config, paths, cwd)
    knowledge = load_knowledge(
        config.knowledge, paths, cwd, policy, notices.tell, lambda: session().messages
    )
    _add_tools(registry, config, knowledge.tools())
    add_plugin_tools(registry, config, notices.tell)
    skills = [skill.place for skill in knowledge.skills]
    for place in layer_places(paths):
        for sentence in rescue_killed(place, paths.patches):
            notices.tell(sentence)
    sandbox = build_sandbox(config, skills, layer_places(paths))
    servers = build_servers(config, paths, policy, sandbox, notices)
    add_tool_search(registry, config, more=servers is not None)
    hooks = build_hooks(config, paths, cwd, notices, session)
    return Workspace(
        paths,
        cwd,
        policy,
        sandbox,
        registry,
        memory,
        servers,
        steps=tuple(step for step in (hooks, knowledge.step) if step is not None),
        knowledge=knowledge,
        undo=build_keeper(config, paths, policy, notices.tell),
        hooks=hooks,
    )


def build_hooks(
    config: Config, paths: Paths, cwd: Path, notices: Notices, session: Callable[[], Session]
) -> Hooks | None:
    """The hooks of the user and the accepted ones of the project, None if there are none."""
    section = config.hooks
    if section == sections.NO_HOOKS and project_hooks_file(cwd) is None:
        return None
    accepted, problem = accepted_hooks(cwd, acceptance.AcceptanceStore(paths.accepted_file))
    if problem:
        notices.tell(problem)
    section = joined(section, accepted)
    if section == sections.NO_HOOKS:
        return None
    return Hooks(section, cwd.resolve(), notices.tell, lambda: session().id)


def build_servers(
    config: Config, paths: Paths, policy: PermissionPolicy, sandbox: Sandbox, notices: Notices
) -> "ServerHub | None":
    """The MCP servers of the user and of the project, not started; None if there are none."""
    if not (config.model.tools and config.mcp.enabled):
        return None
    if not paths.mcp_file.exists() and not project_mcp_files(policy.cwd):
        return None
    servers = all_servers(paths, policy.cwd, notices.tell)
    return hub_of(servers, paths, policy, sandbox, notices.tell) if servers else None


def build_keeper(
    config: Config, paths: Paths, policy: PermissionPolicy, warn: Callable[[str], None]
) -> UndoKeeper | None:
    """The keeper of the settings, None if files are not kept.

    A file is a secret by the default rules, whatever the user allowed, or by a rule of the user.
    """
    section = config.undo
    if not (section.enabled and config.terminal.save_sessions and config.model.tools):
        return None
    limits = UndoLimits(
        section.max_mib * MIB,
        section.max_days,
        section.file_mib * MIB,
        section.command_mib * MIB,
    )
    strict = PermissionPolicy(policy.cwd)

    def protects(path: Path) -> bool:
        """Whether the content of a file must not be copied into the keeper's database."""
        access = Access(AccessKind.READ, str(path))
        return any(rules.denies(READ_FILE, access) for rules in (strict, policy))

    return UndoKeeper(paths.undo_file, policy.cwd, limits, protects, warn)


def _add_tools(registry: ToolRegistry, config: Config, tools: Iterable[AnyTool]) -> None:
    """Add tools after the others, unless the settings switch them off."""
    for tool in tools if config.model.tools else ():
        if tool.name not in config.tools.disabled:
            registry.add(tool)


def offered_tools(
    tools: Iterable[AnyTool], config: Config, model: ModelInfo | None, *, search: bool = False
) -> list[ToolSpec]:
    """The tools that `model` is offered; None is a model that is not loaded yet.

    With `search`, or if the schemas of extensions take too many tokens, the model gets tools that
    search them. A model that was trained on certain tools gets only those. With `memory.tools` on
    `on` it gets the memory's tools too. A model that is not loaded yet may be such a model.
    """
    allowed = BUILTIN_TOOLS if model is None else model.trained_tools
    if allowed is None:
        return deferred.listed_tools(tools, config.tools.schema_tokens, search=search)
    if config.memory.tools == "on":  # `auto` leaves out what the model was not trained on
        allowed |= OWN_TOOLS
    trained = (tool for tool in tools if tool.name in allowed and not tool.is_extension)
    return [tool.trained_spec() for tool in trained]


class ToolOffer(Struct):
    """The tools that each model is offered, made again after the tools in `registry` changed."""

    registry: ToolRegistry
    config: Config
    _by_model: dict[ModelInfo, list[ToolSpec]] = field(
        default_factory=dict[ModelInfo, list[ToolSpec]]
    )
    _version: int = 0  # of the registry, from which `_by_model` was made

    def __call__(self, model: ModelInfo) -> list[ToolSpec]:
        """The tools for a model; the same list until the registry changes."""
        if self._version != self.registry.version:
            self._by_model.clear()
            self._version = self.registry.version
        if model not in self._by_model:
            self._by_model[model] = offered_tools(self.registry, self.config, model)
        return self._by_model[model]


def archive_of(session: Session, memory: Memory | None, place: Place) -> ConversationArchive | None:
    """The archive for evicted messages of `session`, if there is a memory."""
    return ConversationArchive(memory, session.id, place) if memory is not None else None


def build_registry(config: Config) -> ToolRegistry:
    """The tools that are switched on."""
    if not config.model.tools:
        return ToolRegistry()
    tools = [*builtin_tools(), plan.UpdatePlan(), plan.PresentPlan()]
    return ToolRegistry(t for t in tools if t.name not in config.tools.disabled)


def add_plugin_tools(registry: ToolRegistry, config: Config, warn: Callable[[str], None]) -> None:
    """Add the tools of plugins after the others; `warn` gets a sentence for each failure."""
    plugins = Plugins(config.plugins.disabled, config.plugins.settings)
    if config.model.tools and plugins.of(Group.TOOLS):
        add_extensions(registry, plugins, config.tools.disabled, warn)


def add_tool_search(registry: ToolRegistry, config: Config, *, more: bool = False) -> None:
    """Add the search for tools if there are extensions to search, or `more` come later."""
    searchable = more or any(tool.is_extension for tool in registry)
    disabled = deferred.RESERVED_NAMES.intersection(config.tools.disabled)
    if searchable and not disabled and registry.get(deferred.FIND_TOOLS) is None:
        registry.add(deferred.FindTools())


def tool_context(config: Config, paths: Paths, cwd: Path, sandbox: Sandbox) -> ToolContext:
    """The directory and the limits of tools."""
    return ToolContext(
        cwd=cwd,
        spill_dir=paths.spill,
        timeout=config.tools.timeout,
        output_bytes=config.tools.output_bytes,
        allow_private_hosts=config.tools.allow_private_hosts,
        secrets=secrets.keys_in(os.environ),
        sandbox=sandbox,
    )


def build_policy(config: Config, paths: Paths, cwd: Path) -> PermissionPolicy:
    """The policy of one conversation in `cwd`; raises ConfigError if the store is broken."""
    here, audit = str(cwd.resolve()), f"{paths.audit_file}*"
    hidden = (paths.keys_file, paths.credentials_file, paths.providers_file, audit)
    return PermissionPolicy(
        cwd,
        config.permissions.approve,
        user=_rules(config.permissions.rules),
        project=[structs.replace(rule, scope=here) for rule in _rules(config.project_rules)],
        store=PermissionStore(paths.permissions_file),
        own=[
            own_output(paths.spill),
            *(Rule("read", str(place), Decision.DENY) for place in hidden),
            *(Rule("write", place, Decision.DENY) for place in (f"{paths.config}/**", audit)),
        ],
    )


def layer_places(paths: Paths) -> tuple[Path, ...]:
    """Where layers of commands may be made; the second is for a working directory with the first.

    The kernel refuses a layer that lies in the directory that it covers.
    """
    return paths.layers, Path(tempfile.gettempdir(), f"shepherd-layers-{os.getuid()}")


def build_sandbox(
    config: Config, skills: Iterable[Path] = (), layers: tuple[Path, ...] = ()
) -> Sandbox:
    """The sandbox for commands; it is not tested before its first use.

    Commands may read the folders of `skills`, whose scripts they run. Without `layers`, they
    change files as they go.
    """
    tools = config.tools
    return Sandbox(
        tools.sandbox,
        writable=tuple(Path(path).expanduser() for path in tools.sandbox_writable),
        readable=(*(Path(path).expanduser() for path in tools.sandbox_readable), *skills),
        layers=layers,
    )


def _rules(entries: Iterable[sections.PermissionRule]) -> list[Rule]:
    """The rules that settings files have; raises ConfigError for one that could never match."""
    rules = [Rule(e.tool, e.pattern, Decision(e.decision), e.scope) for e in entries]
    for rule in rules:
        check_pattern(rule.tool, rule.pattern)
    return rules
