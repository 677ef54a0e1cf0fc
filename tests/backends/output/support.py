"""Shared by the tests of the output parser: tools, running it, joining events."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.style import GENERIC, OutputStyle
from shepherd.events import TextEvent, Thinking
from shepherd.messages import ToolSpec

Cuttable = TypeVar("Cuttable", str, bytes)


def schema(required: Sequence[str] = (), **types: Any) -> dict[str, Any]:
    properties = {k: {"type": v} if isinstance(v, str) else v for k, v in types.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


OPTIONAL_STRING = {"anyOf": [{"type": "string"}, {"type": "null"}]}
TOOLS = (
    ToolSpec("list_directory", "", schema(path=OPTIONAL_STRING)),
    ToolSpec("read_file", "", schema(["path"], path="string", offset="integer", limit="integer")),
    ToolSpec("write_file", "", schema(["path", "content"], path="string", content="string")),
    ToolSpec(
        "edit_file",
        "",
        schema(
            ["path", "old_string", "new_string"],
            path="string",
            old_string="string",
            new_string="string",
            replace_all="boolean",
        ),
    ),
    ToolSpec("execute_command", "", schema(["command"], command="string", timeout="number")),
    ToolSpec("http_request", "", schema(["url"], url="string", headers="object", tags="array")),
    ToolSpec("get_time", "", schema()),
    ToolSpec("read", "", schema(["path"], path="string")),
)


class Outcome(NamedTuple):
    """All that an output came to, events of one kind joined."""

    events: tuple[TextEvent, ...]
    content: str
    reasoning: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    problems: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return "".join(e.text for e in self.events if not isinstance(e, Thinking))


def joined(events: Iterable[TextEvent]) -> tuple[TextEvent, ...]:
    result: list[TextEvent] = []
    for event in events:
        if result and replace(event, text=result[-1].text) == result[-1]:
            result[-1] = replace(event, text=result[-1].text + event.text)
        else:
            result.append(event)
    return tuple(result)


def parse(
    chunks: str | bytes | Iterable[str] | Iterable[bytes],
    style: OutputStyle = GENERIC,
    tools: Sequence[ToolSpec] = TOOLS,
    *,
    prompt_tail: str = "",
    thinking: bool = False,
    truncated: bool = False,
) -> Outcome:
    output = OutputFilter(
        style,
        tools,
        prompt_tail=prompt_tail,
        thinking=thinking,
    )
    events: list[TextEvent] = []
    for chunk in [chunks] if isinstance(chunks, str | bytes) else chunks:
        events += output.feed(chunk)
    events += output.finish(truncated=truncated)
    result = output.result
    calls = tuple((c.name, c.arguments) for c in result.tool_calls)
    return Outcome(joined(events), result.content, result.reasoning, calls, result.problems)


def pieces(text: Cuttable, cuts: Iterable[int]) -> Iterator[Cuttable]:
    start = 0
    for cut in sorted(cuts):
        yield text[start:cut]
        start = cut
    yield text[start:]
