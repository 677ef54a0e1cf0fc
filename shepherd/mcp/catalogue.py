"""The tools, prompts and resources that a server offers, with caps."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

import mcp_types as types
from mcp import Client

MAX_TOOLS = 500
MAX_PROMPTS = 200
MAX_RESOURCES = 1000
"""The maximum numbers of one server; the rest is left out, with a notice."""
_MAX_PAGES = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What one server offers; `notes` are sentences about what is left out."""

    tools: tuple[types.Tool, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    resources: tuple[types.Resource, ...] = ()
    templates: tuple[types.ResourceTemplate, ...] = ()
    notes: tuple[str, ...] = ()


class _Page(Protocol):
    next_cursor: str | None


P = TypeVar("P", bound=_Page)


async def read_catalogue(client: Client, patterns: list[str]) -> Catalogue:
    """List everything; `patterns` choose the tools, and none chooses all."""
    able, notes = client.server_capabilities, list[str]()
    tools: list[types.Tool] = []
    prompts: list[types.Prompt] = []
    resources: list[types.Resource] = []
    templates: list[types.ResourceTemplate] = []
    if able.tools is not None:
        tools, more = await _all(client.list_tools, lambda page: page.tools, MAX_TOOLS)
        notes += _note("tools", MAX_TOOLS, more=more)
    if able.prompts is not None:
        prompts, more = await _all(client.list_prompts, lambda page: page.prompts, MAX_PROMPTS)
        notes += _note("prompts", MAX_PROMPTS, more=more)
    if able.resources is not None:
        resources, more = await _all(
            client.list_resources, lambda page: page.resources, MAX_RESOURCES
        )
        notes += _note("resources", MAX_RESOURCES, more=more)
        templates, _ = await _all(
            client.list_resource_templates, lambda page: page.resource_templates, MAX_RESOURCES
        )
    chosen = [t for t in tools if not patterns or any(fnmatchcase(t.name, p) for p in patterns)]
    return Catalogue(
        tuple(chosen), tuple(prompts), tuple(resources), tuple(templates), tuple(notes)
    )


async def _all(
    fetch: Callable[..., Awaitable[P]], items: Callable[[P], list[T]], limit: int
) -> tuple[list[T], bool]:
    """The items of all pages, and whether there are more than `limit`."""
    result: list[T] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor)
        result += items(page)
        cursor = page.next_cursor
        if cursor is None or len(result) > limit:
            break
    return result[:limit], cursor is not None or len(result) > limit


def _note(noun: str, limit: int, *, more: bool) -> list[str]:
    return [f"offers more than {limit} {noun}; the rest is left out."] if more else []
