"""Markdown and code as Rich renders them, with our taste; loaded when there is some."""

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from shepherd.cli.terminal.paint import INDENT

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
"""As Rich's own, but what looks like HTML (`List<String>`) is text and not left out."""


def highlight(code: str, language: str, theme: str) -> Text:
    """The code in colours."""
    return Syntax("", language, theme=theme, background_color="default").highlight(code)


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _PlainCode(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = highlight(str(self.text).rstrip(), self.lexer_name, self.theme)
        yield Padding(code, (0, 0, 0, len(INDENT)))


class TerminalMarkdown(Markdown):
    """Markdown that keeps line breaks, sets headings to the left and code without a box."""

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
