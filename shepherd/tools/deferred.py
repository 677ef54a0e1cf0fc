"""Tools that the prompt leaves out: the model searches them, and calls them through one tool."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Container, Iterable, Sequence
from contextlib import closing
from difflib import get_close_matches
from typing import Annotated, Any, cast

from msgspec import Struct, structs
from pydantic import Field

from shepherd.errors import ToolError
from shepherd.json_text import as_list, as_object
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.tools.access import Access
from shepherd.tools.text import one_line, pluralize
from shepherd.tools.tool import AnyTool, Arguments, Tool, ToolContext, ToolResult

FIND_TOOLS, USE_TOOL = "find_tools", "use_tool"
RESERVED_NAMES = frozenset({FIND_TOOLS, USE_TOOL})

USE_TOOL_SPEC = ToolSpec(
    USE_TOOL,
    f"Call a tool that {FIND_TOOLS} returned.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    },
)
USAGE = (
    f"{USE_TOOL} needs two arguments: `name`, the name of another tool, and `arguments`, an object"
)


def open_call(call: ToolCall, client_tools: Container[str] = ()) -> ToolCall:
    """The call inside a call of `use_tool`; any other call, and a malformed one, as it is.

    `use_tool` is not in any registry, so a call that is not opened never runs. `client_tools` are
    run by a client, which may have a tool of this name.
    """
    if call.name != USE_TOOL or USE_TOOL in client_tools:
        return call
    values = dict(call.arguments)
    name = values.pop("name", None)
    arguments = _inner_arguments(values)
    if not isinstance(name, str) or arguments is None or name.strip() in client_tools:
        return call
    return structs.replace(call, name=name.strip(), arguments=arguments)


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """The error for a call of a tool that does not exist."""
    if name == USE_TOOL:
        return USAGE
    nearest = nearest_names(name, names)
    return f"unknown tool: {name}" + (f"; similar: {', '.join(nearest)}" if nearest else "")


def _inner_arguments(values: JsonObject) -> JsonObject | None:
    """The arguments of the inner call, None if they are malformed.

    `values` are those of `use_tool` without the name. Some models write the arguments as JSON in
    a string, or beside the name.
    """
    if "arguments" not in values:
        return values
    if len(values) > 1:
        return None  # some are in the object and some beside it: which are meant?
    value: Any = values["arguments"]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return cast(JsonObject, value) if isinstance(value, dict) else None


MAX_SUMMARY, MAX_NOTE, MAX_VALUES, MAX_DEPTH = 160, 90, 8, 2
"""Maximum characters of a summary and of an argument's description, values of an enumeration, and
levels of nested objects."""

_NAMES = {"string", "integer", "number", "boolean", "object", "null"}


def call_signature(tool: ToolSpec) -> str:
    """The call as `name(a: string, b?: "x" | "y")`; `?` marks an argument that can be left out."""
    return f"{tool.name}({', '.join(_members(tool.parameters, 0))})"


def summary(tool: ToolSpec) -> str:
    """The first sentence of the description on one line."""
    first = _line(tool.description).partition(". ")[0].rstrip(".")
    return _shortened(first, MAX_SUMMARY)


def notes(tool: ToolSpec) -> list[str]:
    """A line for each argument with a description."""
    lines: list[str] = []
    for name, part in _properties(tool.parameters).items():
        text = as_object(part).get("description")
        if isinstance(text, str) and text.strip():
            lines.append(f"{name}: {_shortened(_line(text), MAX_NOTE)}")
    return lines


def _members(schema: JsonObject, depth: int) -> list[str]:
    """`a: string`, `b?: integer`: the properties of an object at this depth of nesting."""
    required: Any = schema.get("required", [])
    names = as_list(required)
    return [
        f"{name}{'' if name in names else '?'}: {_type(as_object(part), depth)}"
        for name, part in _properties(schema).items()
    ]


def _type(schema: JsonObject, depth: int) -> str:
    """A schema as a type of TypeScript; `any` for what is not understood or nested too deep."""
    if "const" in schema:
        return _literal(schema["const"])
    listed: Any = schema.get("enum")
    if isinstance(listed, list):
        return _union([_literal(value) for value in cast(list[object], listed)])
    for key in ("anyOf", "oneOf"):
        options: Any = schema.get(key)
        if isinstance(options, list):
            return _union([_type(as_object(o), depth) for o in cast(list[object], options)])
    kind: Any = schema.get("type", "object" if "properties" in schema else "any")
    if isinstance(kind, list):
        return _union([_type({**schema, "type": k}, depth) for k in cast(list[object], kind)])
    if kind == "array":
        items = _type(as_object(schema.get("items")), depth)
        return f"({items})[]" if " | " in items else f"{items}[]"
    if kind == "object" and depth < MAX_DEPTH and _properties(schema):
        return "{" + ", ".join(_members(schema, depth + 1)) + "}"
    return kind if kind in _NAMES else "any"


def _union(parts: list[str]) -> str:
    different = list(dict.fromkeys(parts))
    more = ["…"] if len(different) > MAX_VALUES else []
    return " | ".join([*different[:MAX_VALUES], *more])


def _properties(schema: JsonObject) -> JsonObject:
    return as_object(schema.get("properties"))


def _literal(value: object) -> str:
    return _shortened(json.dumps(value, ensure_ascii=False), MAX_NOTE)


def _line(text: str) -> str:
    return one_line(" ".join(text.split()))


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


MAX_RESULTS = 5
MAX_CHARACTERS = 2_500
"""Maximum length of a result; the descriptions of arguments are left out beyond it."""

MAX_GROUPS, MAX_GROUP_NAME = 8, 24
"""Maximum number of servers that the description names, and characters of each name."""

_CALL = re.compile(r"^([a-zA-Z0-9_-]{1,64})\(", re.MULTILINE)


class FindArguments(Arguments):
    """What to search for."""

    query: Annotated[str, Field(min_length=1, max_length=500)]


class FindTools(Tool[FindArguments]):
    """Searches the added tools of the runner that runs it."""

    name = FIND_TOOLS
    description = "Search more tools by keywords; returns their names and arguments."
    arguments = FindArguments

    def accesses(self, arguments: FindArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: FindArguments, context: ToolContext) -> ToolResult:
        """Describe the tools that match best, so that the model can call them."""
        if context.runner is None:
            raise ToolError(f"{FIND_TOOLS} works in a conversation only")
        tools = [tool.spec() for tool in context.runner.tools if tool.is_extension]
        matches = await asyncio.to_thread(search_tools, tools, arguments.query, MAX_RESULTS)
        if not matches:
            return ToolResult(_no_match(tools))
        head = f"{len(matches)} of {pluralize(len(tools), 'tool')}; call one with {USE_TOOL}:"
        return ToolResult("\n".join([head, *_entries(matches)]))


class SearchResults(Struct, frozen=True):
    """The tools that searches brought into a conversation; see `session.DeferredTools`."""

    tools: Iterable[AnyTool]

    def specs_in(self, messages: Sequence[Message]) -> list[ToolSpec]:
        """The specs of the tools that results of `find_tools` in `messages` name."""
        results = (m.content for m in messages if m.role is Role.TOOL and m.name == FIND_TOOLS)
        names = {name for text in results for name in _CALL.findall(text)}
        if not names:
            return []
        return [tool.spec() for tool in self.tools if tool.is_extension and tool.name in names]


def groups(tools: Iterable[ToolSpec]) -> list[str]:
    """The servers of tools named `SERVER__TOOL`, sorted."""
    prefixes = (tool.name.partition("__") for tool in tools)
    return sorted({server for server, separator, _ in prefixes if separator and server})


def find_tools_spec(tools: Sequence[ToolSpec]) -> ToolSpec:
    """`find_tools` for a model, with the names of the servers as hints."""
    spec = FindTools().spec()
    servers = [name[:MAX_GROUP_NAME] for name in groups(tools)]
    if not servers:
        return spec
    more = ", …" if len(servers) > MAX_GROUPS else ""
    hint = f" Servers: {', '.join(servers[:MAX_GROUPS])}{more}."
    return ToolSpec(spec.name, spec.description + hint, spec.parameters)


def _entries(tools: Iterable[ToolSpec]) -> list[str]:
    """The lines about each tool: how it is called, its summary, and its arguments if they fit."""
    lines: list[str] = []
    size = 0
    for tool in tools:
        entry = [call_signature(tool)]
        if text := summary(tool):
            entry.append(f"  {text}")
        details = [f"    {note}" for note in notes(tool)]
        if size + sum(map(len, [*entry, *details])) <= MAX_CHARACTERS:  # of the best tools
            entry += details
        size += sum(map(len, entry))
        lines += entry
    return lines


def _no_match(tools: Sequence[ToolSpec]) -> str:
    """The result of a search without a match, which names what there is to search."""
    text = "No tool matches. Try other words."
    if not tools:
        return text
    servers = groups(tools)
    of_servers = f", of {', '.join(servers[:MAX_GROUPS])}" if servers else ""
    return f"{text} There are {pluralize(len(tools), 'tool')}{of_servers}."


_INDEX = """
CREATE VIRTUAL TABLE tools USING fts5 (name, description, arguments, tokenize = 'porter');
INSERT INTO tools (tools, rank) VALUES ('rank', 'bm25(4, 1, 1)');
"""
"""A word in a tool's name weighs four times as much as others; the lowest rank is the best."""

MAX_NAME = 100
"""Characters of a wrong name that are compared."""

MIN_COVERAGE = 0.4
"""A match has at least this share of the best match's score."""

MIN_SIMILARITY = 0.75
"""The minimum share of equal letters of a misspelt word and the word that replaces it."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_IGNORED = frozenset(
    {"a", "an", "and", "by", "for", "from", "in", "is", "it", "me", "my", "of", "on", "or"}
    | {"the", "this", "to", "tool", "with"}
)


def search_tools(tools: Sequence[ToolSpec], query: str, limit: int) -> list[ToolSpec]:
    """The best tools, best first; a tool that the query names comes first."""
    texts = [
        [
            _words(text)
            for text in (tool.name, tool.description, " ".join(_properties(tool.parameters)))
        ]
        for tool in tools
    ]
    named = [n for n, t in enumerate(tools) if t.name.casefold() in query.casefold().split()]
    with closing(sqlite3.connect(":memory:")) as index:
        index.executescript(_INDEX)
        rows = ([" ".join(words) for words in row] for row in texts)
        index.executemany("INSERT INTO tools VALUES (?, ?, ?)", rows)

        def matches(words: Iterable[str]) -> list[tuple[int, float]]:
            terms = " OR ".join(f'"{word}"' for word in words)
            statement = "SELECT rowid - 1, rank FROM tools WHERE tools MATCH ? ORDER BY rank, rowid"
            return index.execute(statement, (terms,)).fetchall() if terms else []

        known = {word for row in texts for words in row for word in words}
        words: list[str] = []
        for word in _words(query):
            if word not in _IGNORED:  # what no tool has becomes the most similar word
                words += [word] if matches([word]) else _similar(word, known, limit=1)
        ranked = matches(words)
    # what is much worse than the best one only shares a common word with the query
    kept = [n for n, rank in ranked if n not in named and rank <= MIN_COVERAGE * ranked[0][1]]
    return [tools[n] for n in [*named, *kept][:limit]]


def nearest_names(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that are most similar to a wrong one: by letters, then by words."""
    name, known = name[:MAX_NAME], list(names)
    similar = _similar(name, known, limit)
    by_words = search_tools([ToolSpec(other, "") for other in known], name, limit)
    return list(dict.fromkeys([*similar, *(tool.name for tool in by_words)]))[:limit]


def _words(text: str) -> list[str]:
    """The words of a text or a name, in lower case."""
    return [word.casefold() for word in _WORD.findall(text)]


def _similar(word: str, words: Iterable[str], limit: int) -> list[str]:
    return get_close_matches(word, list(words), limit, MIN_SIMILARITY)


CHARACTERS_PER_TOKEN = 3.5
"""An estimate for schemas; a small vocabulary needs more tokens."""


def listed_tools(
    tools: Iterable[AnyTool], max_tokens: int, *, search: bool = False
) -> list[ToolSpec]:
    """The tools in the prompt: all if the schemas of the added ones take at most `max_tokens`.

    Otherwise, and with `search`, `find_tools` and `use_tool` replace the added ones. Without
    `find_tools` among `tools` all others are listed.
    """
    every = list(tools)  # it is read three times
    own = [tool.spec() for tool in every if not tool.is_extension and tool.name != FIND_TOOLS]
    added = [tool.spec() for tool in every if tool.is_extension]
    can_search = any(tool.name == FIND_TOOLS for tool in every)
    if not can_search or not (search or estimated_tokens(added) > max_tokens):
        return [*own, *added]
    return [*own, find_tools_spec(added), USE_TOOL_SPEC]


def estimated_tokens(tools: Sequence[ToolSpec]) -> int:
    """About the tokens of the tools in a prompt."""
    texts = (json.dumps([t.name, t.description, t.parameters], ensure_ascii=False) for t in tools)
    return round(sum(map(len, texts)) / CHARACTERS_PER_TOKEN)
