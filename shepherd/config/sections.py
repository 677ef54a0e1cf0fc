"""The smaller sections: model, sampling, memory, undo, MCP, knowledge, hooks, terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field, create_model, model_validator

from shepherd.config.section import LIVE, Section
from shepherd.errors import InvalidRequestError
from shepherd.sampling import PARAMETERS, Sampling, check_sampling


class ModelSection(Section):
    """The model that answers, and its instructions."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            description="Built-in model (`pup`), a model in `llamacpp.models_dir` by name or "
            "relative path, or an absolute path to a GGUF file.",
        ),
        LIVE,
    ] = "pup"
    provider: Annotated[
        str,
        Field(
            description="Provider that answers instead of the local model: `NAME`, or "
            '`NAME/MODEL` for another of its models; "" = none.'
        ),
        LIVE,
    ] = ""
    fallback: Annotated[
        bool,
        Field(
            description="If the provider can't be reached, use the next one by priority, with a "
            "notice; it then receives the conversations."
        ),
        LIVE,
    ] = False
    thinking: Annotated[bool, Field(description="Let the model reason before it answers.")] = False
    tools: Annotated[bool, Field(description="Offer the model the built-in tools.")] = True
    system_message: Annotated[
        str | None,
        Field(description='System message; unset = Shepherd\'s own, "" = none.'),
    ] = None
    max_tokens: Annotated[
        int,
        Field(ge=0, le=16_777_216, description="Maximum answer in tokens; 0 = as many as fit."),
        LIVE,
    ] = 0
    max_rounds: Annotated[
        int, Field(ge=1, le=10_000, description="Maximum rounds of tool calls in one turn.")
    ] = 50
    max_hints: Annotated[
        int,
        Field(
            ge=0,
            le=10,
            description="Maximum hints per turn that tell the model why a call was not understood.",
        ),
    ] = 2

    @property
    def label(self) -> str:
        """The name of the answering model: the provider and its model, or the local model."""
        return self.provider or self.name


_FIELDS: Any = {
    name: (p.kind | None, Field(default=None, ge=p.low, le=p.high, description=p.help))
    for name, p in PARAMETERS.items()
    if name != "logprobs"
}
if TYPE_CHECKING:
    _Numbers = Section
else:  # a setting for each number of `Sampling`
    _Numbers = create_model("_Numbers", __base__=Section, **_FIELDS)


class SamplingSection(_Numbers):
    """The default sampling of requests; unset = the model file's value."""

    dry_sequence_breakers: Annotated[
        list[str] | None, Field(description="Texts that interrupt a repetition for DRY.")
    ] = None
    samplers: Annotated[
        list[str] | None, Field(description="The samplers that are applied, in order.")
    ] = None
    stop: Annotated[
        list[str] | None, Field(description="Texts that end an answer; at most 16.")
    ] = None

    @model_validator(mode="after")
    def _in_range(self) -> SamplingSection:
        try:
            check_sampling(self.to_sampling())
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def to_sampling(self) -> Sampling:
        """The section as plain data."""
        values = self.model_dump()
        for name, value in values.items():
            values[name] = tuple(cast(list[str], value)) if isinstance(value, list) else value
        return Sampling(**values)


class MemorySection(Section):
    """The memory beyond a conversation's context: evicted messages, and facts."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep messages that leave a full context, and facts. Nothing is kept if "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    tools: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Offer the model `search_memory` and the tools for facts; `auto` does not "
            "if a model was trained on a fixed list of tools, like the built-in one."
        ),
    ] = "auto"
    max_mib: Annotated[
        int,
        Field(ge=1, le=1_048_576, description="MiB of stored text; the oldest goes first."),
    ] = 64


class UndoSection(Section):
    """Files as they were before tools changed them, for `/undo` and `/rewind`."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep files before tools change them. Nothing is kept if "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    max_mib: Annotated[
        int, Field(ge=1, le=1_048_576, description="MiB of kept files; the oldest go first.")
    ] = 512
    max_days: Annotated[
        int, Field(ge=1, le=3650, description="Days after which kept files are removed.")
    ] = 30
    file_mib: Annotated[
        int, Field(ge=1, le=1024, description="MiB of the largest file that is kept.")
    ] = 8
    command_mib: Annotated[
        int,
        Field(
            ge=0,
            le=65_536,
            description="MiB that are kept of the working directory before a command runs; "
            "0 = changes of commands can't be undone.",
        ),
    ] = 64


class McpSection(Section):
    """Servers of the Model Context Protocol; `shepherd mcp` manages them."""

    enabled: Annotated[
        bool, Field(description="Start the MCP servers of the user and of the project.")
    ] = True


class KnowledgeSection(Section):
    """Files for agents: AGENTS.md, skills and custom commands."""

    enabled: Annotated[
        bool,
        Field(
            description="Read `AGENTS.md` (else `CLAUDE.md` or `GEMINI.md`), skills and custom "
            "commands of the user and of the project."
        ),
    ] = True
    max_bytes: Annotated[
        int,
        Field(
            ge=0,
            le=1_048_576,
            description="Maximum of all files of instructions together, also a byte for every "
            "four tokens of the context; the rest is cut. 0 = read none.",
        ),
    ] = 32_768
    skills: Annotated[
        bool, Field(description="Offer the model skills, with the tool `use_skill`.")
    ] = True
    server: Annotated[
        bool,
        Field(
            description="Read them also for a server with `--use-tools` or `--server-tools`; all "
            "its clients then get the files of its working directory."
        ),
    ] = False


MAX_TIMEOUT = 600.0


class Hook(Section):
    """One command; it gets JSON on its input, and answers with JSON."""

    command: Annotated[
        str, Field(min_length=1, description="A shell line; it runs in the working directory.")
    ]
    match: Annotated[
        str,
        Field(
            min_length=1,
            description="Glob of tools, or of kinds of access such as `write` or `shell*`.",
        ),
    ] = "*"
    timeout: Annotated[
        float, Field(gt=0, le=MAX_TIMEOUT, description="Seconds after which it has failed.")
    ] = 30.0
    env: Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]],
        Field(description="Variables of the environment that it gets beside the usual ones."),
    ] = []


class HooksSection(Section):
    """Commands of the user that run around the work of the model; see docs/hooks.md."""

    session_start: Annotated[
        list[Hook],
        Field(description="Before the first prompt of a session; can add context for the model."),
    ] = []
    before_tool: Annotated[
        list[Hook],
        Field(
            description="Before an allowed call of a tool that `match` names; can deny the call, "
            "or ask about it. A hook that fails denies it."
        ),
    ] = []
    after_tool: Annotated[
        list[Hook],
        Field(description="After a call; can add to its result, or hold it back."),
    ] = []
    turn_end: Annotated[
        list[Hook],
        Field(description="After the last answer of a turn; a text continues the turn, 3 times."),
    ] = []


NO_HOOKS = HooksSection()


class TerminalSection(Section):
    """The interactive prompt."""

    edit_mode: Annotated[
        Literal["emacs", "vi"], Field(description="Key bindings of the prompt.")
    ] = "emacs"
    show_thinking: Annotated[bool, Field(description="Show the model's reasoning, dimmed.")] = True
    code_theme: Annotated[
        str,
        Field(
            min_length=1,
            description="Pygments style of code blocks; `auto`: the terminal's own colours.",
        ),
    ] = "auto"
    notify: Annotated[
        bool,
        Field(
            description="Ring the bell, and notify, when a turn of ten seconds ends or a question "
            "waits while the terminal does not have the focus."
        ),
    ] = True
    title: Annotated[bool, Field(description="Set the window's title.")] = True
    prices: Annotated[
        list[Annotated[str, Field(pattern=r"^\S+( \d+(\.\d+)?){2,3}$")]],
        Field(
            description="Prices of models in place of their providers', as `MODEL READ WRITTEN "
            "CACHED` in US dollars for a million tokens; without CACHED, cached tokens cost as "
            "much as others."
        ),
    ] = []
    save_sessions: Annotated[
        bool, Field(description="Keep conversations for `--continue` and `--resume`.")
    ] = True
