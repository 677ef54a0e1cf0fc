"""Tools made from functions with type hints."""

import asyncio
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast, get_type_hints, overload

from pydantic import ConfigDict, Field, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from shepherd.errors import ToolError
from shepherd.plugins import Group, Plugins
from shepherd.tools import deferred, paths
from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.tool import AnyTool, Arguments, FileChange, Tool, ToolContext, ToolResult

Function: TypeAlias = Callable[..., Any]
Touches: TypeAlias = Iterable[Access] | Callable[..., Iterable[Access]]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SECTION = re.compile(r"\n\s*(?:Args|Arguments|Parameters):\s*\n(.*)", re.DOTALL)
_PARAMETER = re.compile(r"\s*(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<description>\S.*)")
"""`path (str): The file to read.`"""

_PATHS = frozenset({AccessKind.READ, AccessKind.WRITE})


class _FunctionArguments(Arguments):
    model_config = ConfigDict(protected_namespaces=())


class FunctionTool(Tool[Arguments]):
    """A function as a tool; it can still be called as a function.

    Raises TypeError if the function can't be a tool: its signature or its name.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str = "",
        description: str = "",
        touches: Touches | None = None,
    ) -> None:
        documentation = inspect.getdoc(function) or ""
        self.name = check_tool_name(name or getattr(function, "__name__", ""))
        self.description = description or _summary(documentation)
        if not self.description:
            raise TypeError(f"tool {self.name}: write a docstring that says what it does")
        self._function = function
        self._touches = touches
        hints = _hints(function, self.name)
        # the parameter that gets the context of the call, "" if there is none
        self._context_name = next((n for n, hint in hints.items() if hint is ToolContext), "")
        self.arguments = _arguments_model(function, self.name, hints, _documented(documentation))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def accesses(self, arguments: Arguments, context: ToolContext) -> list[Access]:
        """The declared accesses; else the tool itself, which needs approval."""
        if self._touches is None:
            return [Access(AccessKind.TOOL, self.name)]
        values = dict(arguments)
        declared = self._touches(**values) if callable(self._touches) else self._touches
        return [_resolved(access, context) for access in declared]

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        """Call the function, in a thread if it is not async, and make its result text."""
        values = dict(arguments)
        if self._context_name:  # a parameter with the hint ToolContext is no argument of the model
            values[self._context_name] = context
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(**values)
        else:
            result = await asyncio.to_thread(self._function, **values)
            if inspect.isawaitable(result):  # a plain function may return a coroutine
                result = await result
        return result if isinstance(result, ToolResult) else ToolResult(_text(self.name, result))


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    *, name: str = "", description: str = "", touches: Touches | None = None
) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    touches: Touches | None = None,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool from a function, its type hints and its docstring.

    `touches` declares the accesses of a call, or a function of the same arguments that returns
    them. Without it, each call needs the user's approval. An empty `touches` declares a tool
    without accesses, which runs without approval. Raises TypeError.
    """

    def make(function: Function) -> FunctionTool:
        return FunctionTool(function, name=name, description=description, touches=touches)

    return make if function is None else make(function)


def check_tool_name(name: str) -> str:
    """The name; raises TypeError unless models can use it and no rule can mistake it.

    Rules name tools and kinds of access alike.
    """
    if not _NAME.fullmatch(name):
        raise TypeError(f"{name!r} can't be a tool's name: use up to 64 of a-z, 0-9 and _")
    if name in deferred.RESERVED_NAMES:
        raise TypeError(f"{name!r} can't be a tool's name: Shepherd has a tool of that name")
    if name in {kind.value for kind in AccessKind}:
        raise TypeError(f"{name!r} can't be a tool's name: permission rules use this word")
    return name


def _hints(function: Function, name: str) -> dict[str, Any]:
    """The type hint of each parameter, also where it is written as text; raises TypeError."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"tool {name}: a type hint can't be resolved: {error}") from error


def _arguments_model(
    function: Function, name: str, hints: Mapping[str, Any], documented: Mapping[str, str]
) -> type[Arguments]:
    """A model of the function's parameters; `documented` are their descriptions."""
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {name}: {parameter} can't be given by name")
        if parameter.name not in hints:
            raise TypeError(f"tool {name}: the parameter {parameter.name} has no type hint")
        hint = hints[parameter.name]
        if hint is ToolContext:  # it comes from Shepherd, not from the model
            continue
        default = ... if parameter.default is parameter.empty else parameter.default  # required
        field = Field(default)
        if parameter.name in documented:  # a description of None would replace that of the hint
            field = Field(default, description=documented[parameter.name])
        fields[parameter.name] = (hint, field)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a parameter may be called json or copy
            model = create_model(f"{name}_arguments", __base__=_FunctionArguments, **fields)
        model.model_json_schema()  # raises the error of a type that has no schema now, not later
    except (PydanticUserError, PydanticSchemaGenerationError, NameError) as error:
        raise TypeError(f"tool {name}: {error}") from error
    return model


def _resolved(access: Access, context: ToolContext) -> Access:
    """The access as rules read it; raises ValueError for an unknown kind, ToolError for a path."""
    kind, target = AccessKind(access.kind), access.target
    if kind in _PATHS:
        target = str(paths.resolve_path(target, context.cwd))
    return Access(kind, target, Claim(access.claim), access.wildcards)


def _text(name: str, result: object) -> str:
    """What a function returned as a text for the model; values other than texts become JSON."""
    if result is None:
        return "done"
    if isinstance(result, str):
        return result
    try:
        return to_json(result).decode()
    except PydanticSerializationError as error:
        raise ToolError(f"{name} returned {type(result).__name__}, which is not JSON") from error


def _summary(documentation: str) -> str:
    """The text before the section of arguments, in one line."""
    return " ".join(_SECTION.sub("", f"\n{documentation}").split())


def _documented(documentation: str) -> dict[str, str]:
    """The arguments that a docstring's `Args:` section describes."""
    section = _SECTION.search(f"\n{documentation}")
    lines = section[1].splitlines() if section else []
    matches = (_PARAMETER.fullmatch(line) for line in lines)
    return {match["name"]: match["description"].strip() for match in matches if match}


class ExtensionTool(Tool[Any]):
    """A plugin's tool. A call touches the tool itself, and the targets that the plugin declares."""

    is_extension = True

    def __init__(self, tool: AnyTool) -> None:
        self._tool = tool
        self.name = check_tool_name(tool.name)
        if self.name.startswith("ask_"):
            raise TypeError(f"{self.name!r} can't be a tool's name: ask_NAME asks a provider")
        self.description = tool.description
        self.arguments = tool.arguments
        self.calls_models, self.starts_programs = tool.calls_models, tool.starts_programs
        self.parallel, self.polls = tool.parallel, tool.polls
        self.later_arguments = tool.later_arguments
        self.spec()  # a class of arguments without a schema raises its error here, not in a turn

    def accesses(self, arguments: Any, context: ToolContext) -> list[Access]:
        itself = Access(AccessKind.TOOL, self.name)
        return [*dict.fromkeys([itself, *self._tool.accesses(arguments, context)])]

    def preview(self, arguments: Any, context: ToolContext) -> str:
        return self._tool.preview(arguments, context)

    def change(self, arguments: Any, context: ToolContext) -> FileChange | None:
        return self._tool.change(arguments, context)

    def goes_on(self, arguments: Any) -> bool:
        return self._tool.goes_on(arguments)

    def is_live(self, arguments: Any) -> bool:
        return self._tool.is_live(arguments)

    def start_directory(self, arguments: Any, context: ToolContext) -> Path:
        return self._tool.start_directory(arguments, context)

    def deadline(self, arguments: Any, context: ToolContext) -> float | None:
        return self._tool.deadline(arguments, context)

    async def run(self, arguments: Any, context: ToolContext) -> ToolResult:
        return await self._tool.run(arguments, context)


def add_extensions(
    registry: ToolRegistry, plugins: Plugins, disabled: Iterable[str], warn: Callable[[str], None]
) -> None:
    """Append the tools of plugins; `warn` receives a sentence for one that can't be added."""
    disabled_names = {*disabled}

    def add(loaded: object) -> None:
        tools = [ExtensionTool(tool) for tool in _tools(loaded)]  # all or none of an entry point
        for tool in tools:
            if tool.name not in disabled_names:
                registry.add(tool)

    plugins.use(Group.TOOLS, add, warn)


def _tools(loaded: object) -> Iterator[AnyTool]:
    """The tools of an entry point: a tool, a class of tools, or a function that returns some."""
    if not isinstance(loaded, Tool) and callable(loaded):
        loaded = loaded()
    if isinstance(loaded, Tool):
        yield cast(AnyTool, loaded)
        return
    if not isinstance(loaded, Iterable):
        raise TypeError(f"{loaded!r} is not a tool")
    for tool in cast(Iterable[object], loaded):
        if not isinstance(tool, Tool):
            raise TypeError(f"{tool!r} is not a tool")
        yield cast(AnyTool, tool)
