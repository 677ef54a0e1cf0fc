"""The bodies that may stand between the tags of a call."""

from shepherd.backends.output.calls.catalog import FoundCall, ToolCatalog
from shepherd.backends.output.markers import MarkerSet


def body_starts(names: tuple[str, ...]) -> MarkerSet:
    """How a body that is not JSON can begin."""
    return MarkerSet(())


def parse_body(
    body: str, catalog: ToolCatalog, *, final: bool = False
) -> tuple[FoundCall, ...] | None:
    """The calls in `body`; empty if it is something else, None if its end is still to come.

    `final`: nothing is to come, and closing tags may be missing.
    """
    return catalog.from_json_text(body.strip())
