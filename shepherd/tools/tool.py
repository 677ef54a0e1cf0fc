"""The base class of tools: arguments, context, and the call itself."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, model_validator

from shepherd.errors import ToolError
from shepherd.events import EventCallback, ignore_events
from shepherd.images import Image
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.tools.access import Access
from shepherd.tools.paths import REAL_FILES, View, resolve_path

if TYPE_CHECKING:
    from shepherd.tools.layer.shared import SharedLayer
    from shepherd.tools.sandbox.refusal import Refusal
    from shepherd.tools.sandbox.sandbox import Confinement, Sandbox
    from shepherd.tools.shell.background import BackgroundCommands, Changes


class Arguments(BaseModel):
    """Base of tools' arguments: unknown names are refused, and sensible conversions are made.

    Small models send null for omitted arguments, and numbers where text is expected.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        defer_build=True,  # most tools are neither offered to a model nor called
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, data: object) -> object:
        """The arguments without optional ones that are null, so that those get their defaults."""
        if not isinstance(data, dict):
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        values = cast(dict[str, Any], data)
        return {k: v for k, v in values.items() if v is not None or k not in optional}


A = TypeVar("A", bound=BaseModel)


class ToolResult(Struct, frozen=True):
    """The result of a call: `content` is for the model, `display` (such as a diff) for the user.

    `images` reach models that can see. `refusal` describes
    the action that the sandbox refused to the programs of the call.
    """

    content: str
    ok: bool = True
    display: str = ""
    images: tuple[Image, ...] = ()
    refusal: "Refusal | None" = None


ToolOutput: TypeAlias = ToolResult
"""Its public name: there, the event with the result of a call is the `ToolResult`."""

Authorize: TypeAlias = Callable[[Access, str], Awaitable[bool]]
"""Decides on a further access of a running call; the text gives its purpose.

True if the user approved it, False if the rules allow it without a question.
"""


FieldChoices: TypeAlias = tuple[tuple[str, ...], ...]
"""The texts that each field of a form accepts, none for any text."""

AskUser: TypeAlias = Callable[
    [str, str, tuple[str, ...], FieldChoices], Awaitable[tuple[str, ...] | None]
]
"""Asks the user: the reason, a text, the names of values to type, and their choices.

Returns the typed values; None if the user refuses or there is no user to ask.
"""


class FileChange(Struct, frozen=True):
    """The text of one file before and after a call; `before` is None for a new file."""

    path: Path
    before: str | None
    after: str


def allow_all(_access: Access) -> bool:
    """The default of `ToolContext.denies`: no rule denies anything."""
    return False


async def refuse_all(access: Access, _purpose: str) -> bool:
    """The default of `ToolContext.authorize`: every further access is refused."""
    raise ToolError(f"not allowed: {access.kind} {access.target}")


async def ask_nobody(
    _reason: str, _text: str, _fields: tuple[str, ...], _choices: FieldChoices
) -> tuple[str, ...] | None:
    """The default of `ToolContext.ask_user`: every question is refused."""
    return None


def no_changes() -> "Changes | None":
    """The default of `ToolContext.hand_over`: the programs of the call change files as they run."""
    return None


class ToolContext(Struct, frozen=True):
    """Where and under which limits a tool runs.

    `timeout` is in seconds. `output_bytes` caps a result's text; `spill_dir` takes the rest of it.
    `environment` is added to the environment of commands. In results, each of `secrets` is
    replaced by its name. The runner sets `denies`, `grants`, `authorize`, `ask_user`,
    `confinement` and `hand_over`:

    - A tool that finds its files while it runs (grep, glob) skips those that `denies` reports.
    - `grants` are the approved accesses. The call may do these without another request.
    - `authorize` decides on a further access. It raises ToolError if the rules or the user refuse.
    - `hand_over` is called by a call whose programs go on: what they change is no longer its own.

    `on_event` receives events while the tool runs. `runner` runs the call; a tool that calls
    another model offers it the runner's tools. `sandbox` finds the box for tools that start
    programs; None means that they run without one. `background` keeps the commands that go on
    after their call. `view` is how the call sees files, such as those of a layer.
    """

    cwd: Path
    spill_dir: Path
    timeout: float = 120.0
    output_bytes: int = 32_768
    allow_private_hosts: bool = False
    environment: dict[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    denies: Callable[[Access], bool] = allow_all
    grants: frozenset[Access] = frozenset()
    authorize: Authorize = refuse_all
    ask_user: AskUser = ask_nobody
    on_event: EventCallback = ignore_events
    runner: "CallRunner | None" = None
    sandbox: "Sandbox | None" = None
    confinement: "Confinement | None" = None
    background: "BackgroundCommands | None" = None
    review: "SharedLayer | None" = None
    view: View = REAL_FILES
    hand_over: "Callable[[], Changes | None]" = no_changes

    def __repr__(self) -> str:
        return f"ToolContext(cwd={self.cwd!r})"  # the whole would print the secrets

    def resolve(self, path: str) -> Path:
        """The absolute path with every link followed, as the call sees them; raises ToolError."""
        return resolve_path(path, self.cwd, self.view)

    def without_secrets(self, text: str) -> str:
        """The text with the names of secrets in their places."""
        for secret, name in self.secrets.items():
            text = text.replace(secret, f"[{name}]")
        return text

    def require(self, access: Access) -> None:
        """Raise ToolError unless the call was approved with exactly this access."""
        if access not in self.grants:
            raise ToolError("what the call touches has changed since it was approved; try again")


ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "search", "execute", "fetch", "think", "other"
]
"""What a tool does, in the words of the Agent Client Protocol."""


class Traits(Struct, frozen=True):
    """How frontends present the calls of a tool.

    `verb` begins the title of a call. `unit` is what a line of its result stands for. `reads_only`
    means that it changes nothing and connects to nothing. With `shows_end` the end of its result
    matters more than the beginning. With `connects_in_plan` its requests over the network change
    nothing, so plan mode allows them.
    """

    kind: ToolKind = "other"
    verb: str = ""
    unit: str = ""
    reads_only: bool = False
    shows_end: bool = False
    connects_in_plan: bool = False


TRAITS: dict[str, Traits] = {}
"""The traits of each tool that has some, by its name."""


class Tool(ABC, Generic[A]):
    """One tool; it is stateless, so one instance serves every session.

    A tool with `calls_models` runs another model, which is not offered such tools itself. A tool
    with `starts_programs` starts them in the `confinement` of its context. A tool with
    `is_extension` is not Shepherd's own; no model is trained on it. Calls of a `parallel` tool in
    one answer run at the same time. Equal calls of a tool that `polls` are usual. The built-in
    model is older than the `later_arguments`, and does not see them.
    """

    name: str
    description: str
    arguments: type[A]
    calls_models: bool = False
    is_extension: bool = False
    starts_programs: bool = False
    parallel: bool = False
    polls: bool = False
    traits: Traits = Traits()
    later_arguments: frozenset[str] = frozenset()

    def __init_subclass__(cls) -> None:
        """Register the traits of the new class under the name of its tool."""
        # frontends also show calls of earlier sessions, and know only the name of the tool
        super().__init_subclass__()
        if "traits" in cls.__dict__ and hasattr(cls, "name"):
            TRAITS[cls.name] = cls.traits

    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        schema = compact_schema(self.arguments)
        return ToolSpec(
            self.name, self.description, schema, parallel=self.parallel, polls=self.polls
        )

    def trained_spec(self) -> ToolSpec:
        """The tool as the models see it that were trained on certain tools."""
        spec = self.spec()
        for name in self.later_arguments:
            spec.parameters["properties"].pop(name)
        return spec

    @abstractmethod
    def accesses(self, arguments: A, context: ToolContext) -> list[Access]:
        """Everything that the call would touch, with resolved targets, for the rules."""

    def preview(self, arguments: A, context: ToolContext) -> str:
        """The text that a user reads before approving: a diff or the command; "" for nothing more.

        Raises ToolError if the call can't succeed, and PlaceError if the file at its path is the
        reason. Then no question follows, unless the model may not read that reason.
        """
        return ""

    def change(self, arguments: A, context: ToolContext) -> FileChange | None:
        """The change of a text file that the call would make, None if it makes another change.

        Raises ToolError if the call can't succeed.
        """
        return None

    def start_directory(self, arguments: A, context: ToolContext) -> Path:
        """The resolved directory in which a call starts programs."""
        return context.cwd

    def goes_on(self, arguments: A) -> bool:
        """Whether the programs that the call starts go on after its end."""
        return False

    def is_live(self, arguments: A) -> bool:
        """Whether its programs are to change files as they run, without a layer."""
        return False

    def deadline(self, arguments: A, context: ToolContext) -> float | None:
        """Seconds after which the runner stops the call; None if the tool has its own limit."""
        return context.timeout

    @abstractmethod
    async def run(self, arguments: A, context: ToolContext) -> ToolResult:
        """Run the call; raises ToolError with text for the model. Cancelling the task stops it."""


AnyTool: TypeAlias = Tool[Any]


class CallRunner(Protocol):
    """Runs the calls of a model under the rules of a conversation."""

    @property
    def tools(self) -> Iterable[AnyTool]:
        """The tools that it runs."""
        ...

    def on_behalf_of(self, caller: str, *, in_layer: bool = False) -> "CallRunner":
        """A runner for a model that a tool calls, with the same rules and the same approver.

        With `in_layer` its calls work in a layer of their own, which `settle` ends.
        """
        ...

    async def settle(self, *, keep: bool = True) -> str:
        """Commit what the calls have changed in a layer of their own, or drop it.

        Returns a note for the model that waits for the work; raises ToolError if nothing is kept.
        """
        ...

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        """The call's result; errors become results, and only cancelling the task raises."""
        ...


_NOISE = frozenset(
    {"title", "default", "additionalProperties", "$defs"}
    | {"minLength", "maxLength", "minimum", "maximum"}
)


def compact_schema(kind: type[BaseModel]) -> JsonObject:
    """The JSON schema of `kind` without titles, defaults, ranges and references.

    Properties stay in the order of the fields. Ranges are still checked; a
    violation becomes an error for the model.
    """
    return deepcopy(_schema(kind))


@lru_cache(maxsize=256)
def _schema(kind: type[BaseModel]) -> JsonObject:
    full = kind.model_json_schema()
    definitions = cast(JsonObject, full.get("$defs", {}))
    schema = cast(JsonObject, _compact(full, definitions))
    schema.pop("description", None)  # that of the class, which is not for models
    # a kind without fields gets empty `properties`
    return {"type": "object", "properties": schema.pop("properties", {})} | schema


def _compact(node: object, definitions: JsonObject) -> object:
    """A part of a schema without noise, and with what its references name in place of them."""
    if isinstance(node, list):
        return [_compact(item, definitions) for item in cast(list[object], node)]
    if not isinstance(node, dict):
        return node
    mapping = cast(dict[str, Any], node)
    if "$ref" in mapping:
        return _compact(definitions[str(mapping["$ref"]).rsplit("/", 1)[-1]], definitions)
    result: dict[str, Any] = {}
    for key, value in mapping.items():
        if key == "properties":  # its keys are names of arguments, such as `title`
            parts = cast(dict[str, Any], value)
            result[key] = {name: _compact(part, definitions) for name, part in parts.items()}
        elif key not in _NOISE:
            result[key] = _compact(value, definitions)
    return result
