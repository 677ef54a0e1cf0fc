"""The sections of the settings, but for the larger ones of the server and of llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, create_model, model_validator

from shepherd import errors, sampling
from shepherd.config.section import LIVE, ApproveMode, SandboxMode, Section


class ModelSection(Section):
    """The model that answers, and its instructions."""

    name: Annotated[str, LIVE] = Field(default="pup", min_length=1)
    """Built-in model (`pup`), a model in `llamacpp.models_dir` by name or relative path, or an
    absolute path to a GGUF file."""

    provider: Annotated[str, LIVE] = ""
    """Provider that answers instead of the local model: `NAME`, or `NAME/MODEL` for another of its
    models; "" = none."""

    fallback: Annotated[bool, LIVE] = False
    """If the provider can't be reached, use the next one by priority, with a notice; it then
    receives the conversations."""

    thinking: bool = False
    """Let the model reason before it answers."""

    tools: bool = True
    """Offer the model the built-in tools."""

    system_message: str | None = None
    """System message; unset = Shepherd's own, "" = none."""

    max_tokens: Annotated[int, LIVE] = Field(default=0, ge=0, le=16_777_216)
    """Maximum answer in tokens; 0 = as many as fit."""

    max_rounds: int = Field(default=50, ge=1, le=10_000)
    """Maximum rounds of tool calls in one turn."""

    max_hints: int = Field(default=2, ge=0, le=10)
    """Maximum hints per turn that tell the model why a call was not understood."""

    @property
    def label(self) -> str:
        """The name of the answering model: the provider and its model, or the local model."""
        return self.provider or self.name


_FIELDS: Any = {
    name: (p.kind | None, Field(default=None, ge=p.low, le=p.high, description=p.help))
    for name, p in sampling.PARAMETERS.items()
    if name != "logprobs"
}
if TYPE_CHECKING:
    _Numbers = Section
else:  # a setting for each number of `Sampling`
    _Numbers = create_model("_Numbers", __base__=Section, **_FIELDS)


class SamplingSection(_Numbers):
    """The default sampling of requests; unset = the model file's value."""

    dry_sequence_breakers: list[str] | None = None
    """Texts that interrupt a repetition for DRY."""

    samplers: list[str] | None = None
    """The samplers that are applied, in order."""

    stop: list[str] | None = None
    """Texts that end an answer; at most 16."""

    @model_validator(mode="after")
    def _in_range(self) -> SamplingSection:
        """Report numbers that no request could use either, as pydantic's errors."""
        try:
            sampling.check_sampling(self.to_sampling())
        except errors.InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def to_sampling(self) -> sampling.Sampling:
        """The section as plain data, in which lists are tuples."""
        values = self.model_dump()
        for name, value in values.items():
            values[name] = tuple(cast(list[str], value)) if isinstance(value, list) else value
        return sampling.Sampling(**values)


class MemorySection(Section):
    """The memory beyond a conversation's context: evicted messages, and facts."""

    enabled: bool = True
    """Keep messages that leave a full context, and facts. Nothing is kept if
    `terminal.save_sessions` is off."""

    tools: Literal["auto", "on", "off"] = "auto"
    """Offer the model `search_memory` and the tools for facts; `auto` does not if a model was
    trained on a fixed list of tools, like the built-in one."""

    max_mib: int = Field(default=64, ge=1, le=1_048_576)
    """MiB of stored text; the oldest goes first."""


class UndoSection(Section):
    """Files as they were before tools changed them, for `/undo` and `/rewind`."""

    enabled: bool = True
    """Keep files before tools change them. Nothing is kept if `terminal.save_sessions` is off."""

    max_mib: int = Field(default=512, ge=1, le=1_048_576)
    """MiB of kept files; the oldest go first."""

    max_days: int = Field(default=30, ge=1, le=3650)
    """Days after which kept files are removed."""

    file_mib: int = Field(default=64, ge=1, le=1024)
    """MiB of the largest file that is kept."""

    command_mib: int = Field(default=64, ge=0, le=65_536)
    """MiB that are kept of the working directory before a command runs; 0 = changes of commands
    can't be undone."""


class McpSection(Section):
    """Servers of the Model Context Protocol; `shepherd mcp` manages them."""

    enabled: bool = True
    """Start the MCP servers of the user and of the project."""


class KnowledgeSection(Section):
    """Files for agents: AGENTS.md, skills and custom commands."""

    enabled: bool = True
    """Read `AGENTS.md` (else `CLAUDE.md` or `GEMINI.md`), skills and custom commands of the user
    and of the project."""

    max_bytes: int = Field(default=32_768, ge=0, le=1_048_576)
    """Maximum of all files of instructions together, also a byte for every four tokens of the
    context; the rest is cut. 0 = read none."""

    skills: bool = True
    """Offer the model skills, with the tool `use_skill`."""

    server: bool = False
    """Read them also for a server with `--use-tools` or `--server-tools`; all its clients then get
    the files of its working directory."""


MAX_TIMEOUT = 600.0


class Hook(Section):
    """One command; it gets JSON on its input, and answers with JSON."""

    command: str = Field(min_length=1)
    """A shell line; it runs in the working directory."""

    match: str = Field(default="*", min_length=1)
    """Glob of tools, or of kinds of access such as `write` or `shell*`."""

    timeout: float = Field(default=30.0, gt=0, le=MAX_TIMEOUT)
    """Seconds after which it has failed."""

    env: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = []
    """Variables of the environment that it gets beside the usual ones."""


class HooksSection(Section):
    """Commands of the user that run around the work of the model; see docs/hooks.md."""

    session_start: list[Hook] = []
    """Before the first prompt of a session; can add context for the model."""

    before_tool: list[Hook] = []
    """Before an allowed call of a tool that `match` names; can deny the call, or ask about it. A
    hook that fails denies it."""

    after_tool: list[Hook] = []
    """After a call; can add to its result, or hold it back."""

    turn_end: list[Hook] = []
    """After the last answer of a turn; a text continues the turn, 3 times."""


NO_HOOKS = HooksSection()


class TerminalSection(Section):
    """The interactive prompt."""

    edit_mode: Literal["emacs", "vi"] = "emacs"
    """Key bindings of the prompt."""

    show_thinking: bool = True
    """Show the model's reasoning, dimmed."""

    code_theme: str = Field(default="auto", min_length=1)
    """Pygments style of code blocks; `auto`: the terminal's own colours."""

    notify: bool = True
    """Ring the bell, and notify, when a turn of ten seconds ends or a question waits while the
    terminal does not have the focus."""

    title: bool = True
    """Set the window's title."""

    prices: list[Annotated[str, Field(pattern=r"^\S+( \d+(\.\d+)?){2,3}$")]] = []
    """Prices of models in place of their providers', as `MODEL READ WRITTEN CACHED` in US dollars
    for a million tokens; without CACHED, cached tokens cost as much as others."""

    save_sessions: bool = True
    """Keep conversations for `--continue` and `--resume`."""


def _check_paths(paths: list[str]) -> list[str]:
    """The paths; raises ValueError for a relative one, and for all of `/` or of the home."""
    for path in paths:
        if not path.startswith(("/", "~/")):
            raise ValueError(f"must begin with / or ~/, got {path!r}")
        if not path.strip("/~"):
            raise ValueError(f"must not be the whole of {path!r}")
    return paths


class PermissionRule(Section):
    """One rule: calls of `tool` that touch what `pattern` matches get `decision`."""

    tool: str = Field(pattern=r"^[a-z0-9_*?]+$")
    """Tool, glob of tools, or read, write, shell, shell_network, unsandboxed, network, environment,
    mcp, tool."""

    pattern: str = Field(min_length=1)
    """Path, command, host, variable or `SERVER/TOOL`, with * and **."""

    decision: Literal["allow", "ask", "deny"]
    """The decision on such a call."""

    scope: str = ""
    """Directory in and below which the rule holds; "" = everywhere."""


class PermissionsSection(Section):
    """The tool calls that need no approval."""

    approve: ApproveMode = Field(default=ApproveMode.ASK, strict=False)
    """Calls that need approval: `ask` asks, `edits` approves changes to files in the working
    directory, `review` asks once at the end of a turn, `auto` also approves commands in the
    sandbox, `all` approves everything, `none` refuses. `plan` changes nothing."""

    rules: list[PermissionRule] = []
    """Rules after the built-in ones; the last match wins. A project's rules count only if they are
    stricter."""


class ToolsSection(Section):
    """Limits of the built-in tools."""

    timeout: float = Field(default=120.0, ge=1, le=86_400)
    """Maximum seconds of one call."""

    output_bytes: int = Field(default=32_768, ge=1024, le=16_777_216)
    """Maximum result in bytes; the rest goes to a file."""

    allow_private_hosts: bool = False
    """Let the http tools reach loopback and private addresses."""

    sandbox: SandboxMode = Field(default=SandboxMode.AUTO, strict=False)
    """Commands run in the strongest sandbox that works here. If none works, `auto` runs them
    without one, and `required` refuses them; `off` uses none."""

    sandbox_writable: Annotated[list[str], AfterValidator(_check_paths)] = []
    """Paths outside the working directory that commands in the sandbox may also write, such as
    `~/.cache/pip`."""

    sandbox_readable: Annotated[list[str], AfterValidator(_check_paths)] = []
    """Paths that commands in the sandbox may also read."""

    disabled: list[str] = []
    """Names of tools that are not offered."""

    schema_tokens: int = Field(default=500, ge=0, le=1_000_000)
    """Maximum tokens of added tools (MCP, plugins) in the prompt. If they take more, the model
    searches them with `find_tools`."""

    ask_providers: bool = True
    """Offer the model `ask_NAME` for each other provider, unless that one's `ask` is false."""

    tasks: int = Field(default=4, ge=0, le=16)
    """Sub-agents that work at the same time; 0 = the model has no `task` tool."""


class PluginsSection(Section):
    """The plugins of installed packages."""

    disabled: list[str] = []
    """Packages, or entry points by name, that are not loaded."""

    settings: dict[str, dict[str, Any]] = {}
    """Settings for plugins: a table by the name of the entry point or of the package."""
