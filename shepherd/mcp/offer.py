"""The offer of a server, in words."""

from shepherd.mcp.hub import Entry
from shepherd.mcp.settings.definition import ServerState
from shepherd.mcp.tools.names import tool_names

MAX_LISTED = 50


def offer_lines(entry: Entry) -> list[str]:
    """The state of a server and its offer, in lines."""
    if entry.current is not ServerState.READY or entry.connection is None:
        return [": ".join(filter(None, [entry.name, entry.current, entry.reason]))]
    offer = entry.connection.catalogue
    names = tool_names(entry.name, [tool.name for tool in offer.tools])
    lines = [f"{entry.name}: ready"]
    for noun, texts in (
        ("tools", names),
        ("prompts", [f"/{entry.name}:{prompt.name}" for prompt in offer.prompts]),
        ("resources", [f"@{entry.name}:{resource.uri}" for resource in offer.resources]),
    ):
        more = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
        lines += [f"{noun}: {', '.join(texts[:MAX_LISTED])}{more}"] if texts else []
    return lines
