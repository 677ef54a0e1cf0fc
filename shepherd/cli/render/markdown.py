"""Markdown and code, rendered by Rich with our styles; imported on first use."""

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from shepherd.cli.terminal.paint import INDENT

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
"""Like Rich's own, but text like HTML (`List<String>`) is shown as it is."""


def highlight(code: str, language: str, theme: str) -> Text:
    """The code with colours."""
    return Syntax("", language, theme=theme, background_color="default").highlight(code)


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _PlainCode(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = highlight(str(self.text).rstrip(), self.lexer_name, self.theme)
        yield Padding(code, (0, 0, 0, len(INDENT)))


class TerminalMarkdown(Markdown):
    """Markdown that keeps line breaks, aligns headings left and shows code without a box."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCode,
        "code_block": _PlainCode,
    }

    def __init__(self, source: str, code_theme: str) -> None:
        super().__init__(source, code_theme=code_theme, hyperlinks=False)
        self.parsed = _PARSER.parse(source)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
