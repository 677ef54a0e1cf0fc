"""Function elements without a wrapper, as Qwen3-Coder often writes them."""

from shepherd.backends.output.calls.bodies import parse_body
from shepherd.backends.output.calls.catalog import FoundCall, ToolCatalog
from shepherd.backends.output.calls.closing import ClosingReader
from shepherd.backends.output.calls.diagnose import problem_of
from shepherd.backends.output.calls.xml import FUNCTION, Scope, child_starts


class FunctionReader(ClosingReader):
    """Reads behind `<function=name>` or `<invoke name="name">` that stands without a wrapper."""

    def __init__(self, catalog: ToolCatalog, marker: str) -> None:
        found = FUNCTION.fullmatch(marker)
        tag, name = (found["tag"], found["name"]) if found else ("function", "")
        prefix = tag.removesuffix("function").removesuffix("invoke")
        keys = catalog.argument_names(catalog.known(name) or name)
        super().__init__(f"</{tag}>", child_starts(prefix, keys))
        self._catalog = catalog
        self._marker = marker

    def _parse(self, scope: Scope) -> tuple[FoundCall, ...] | None:
        return parse_body(self._marker + self._read, self._catalog, scope)

    def _problem(self, text: str) -> str:
        return problem_of(self._marker + text, self._catalog)
