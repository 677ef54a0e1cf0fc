"""Rich renderables as text for the terminal: its width, colours and characters."""

import re
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO, TextIOWrapper

from msgspec import Struct
from rich.cells import get_character_cell_size
from rich.console import COLOR_SYSTEMS, Console, RenderableType
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold italic",
        "markdown.code": "cyan",
        "markdown.item.number": "bold",
        "markdown.link": "underline",
        "markdown.link_url": "underline",
        "user": "bold cyan",
        "tool": "bold",
        "good": "green",
        "bad": "red",
        "warn": "yellow",
        "quiet": "dim",
        "added": "green",
        "removed": "red",
        "hunk": "cyan",
    }
)
_TRAILING = re.compile(r"(?:\x1b\[[0-9;]*m| )+$", re.MULTILINE)


class Glyphs(Struct, frozen=True):
    """The symbols at the beginning of lines."""

    user: str = "›"
    call: str = "●"
    result: str = "└"
    dot: str = "·"
    spinner: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
    bullet: str = "•"
    edge: str = "▌"
    rule: str = "─"
    top: str = "╭─"
    bottom: str = "╰─"


UNICODE = Glyphs()
ASCII = Glyphs(
    user=">",
    call="*",
    result="|",
    dot="-",
    spinner="|/-\\",
    bullet="*",
    edge="|",
    rule="-",
    top="+-",
    bottom="+-",
)


class Piece(Struct, frozen=True):
    """A renderable.

    `soft_wrap` lets the terminal break long lines, so that they can be copied whole.
    """

    renderable: RenderableType
    soft_wrap: bool = False


class Row(Struct, frozen=True):
    """The beginning of a line of flowing text.

    `first` is before the line, `rest` before the rows in which it continues.
    """

    first: Text
    rest: Text


class Words(Struct, frozen=True):
    """Text that flows on in the line; a word is never divided between two of these."""

    text: Text


Ink = Piece | Row | Words
"""Output that is never redrawn."""
BLANK_LINE = Piece("")
INDENT = "  "


class Painter:
    """Turns renderables into text.

    With `styled` False there are no escape sequences; otherwise colours follow TERM, COLORTERM and
    NO_COLOR.
    """

    def __init__(
        self, *, styled: bool = True, encoding: str = "utf-8", code_theme: str = "ansi_dark"
    ) -> None:
        self.code_theme = code_theme  # a Pygments style, which changes with the background
        self.styled = styled
        self.glyphs = UNICODE if encoding.lower().startswith("utf") else ASCII
        self._console = Console(
            file=TextIOWrapper(BytesIO(), encoding),  # unused, but for the name of the encoding
            force_terminal=styled,
            color_system="auto" if styled else None,
            theme=_THEME,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
        )

    @property
    def color_system(self) -> str | None:
        """`standard`, `256` or `truecolor`; None without colours."""
        return None if self._console.no_color else self._console.color_system

    def paint(self, piece: Piece, width: int) -> str:
        """The piece as lines, each with its newline, without trailing spaces."""
        self._console.width = max(10, width)  # Rich needs some columns
        text = piece.renderable if isinstance(piece.renderable, Text) else Text()
        with self._console.capture() as capture:
            self._console.print(  # the console joins texts and forgets how they wrap
                piece.renderable,
                soft_wrap=piece.soft_wrap,
                no_wrap=text.no_wrap,
                overflow=text.overflow,
            )
        # spaces at the ends of rows go, the sequences of styles among them stay
        return _TRAILING.sub(lambda m: m.group().replace(" ", ""), capture.get())

    def paint_all(self, pieces: Iterable[Piece], width: int) -> str:
        """Several pieces, one below the other."""
        return "".join(self.paint(piece, width) for piece in pieces)

    def fragments(self, text: Text) -> list[tuple[str, Style]]:
        """The text in pieces of one style each."""
        if not text.spans and not text.style:  # most words; `render` is slow
            return [(text.plain, Style.null())]
        segments = text.render(self._console)  # some are empty, such as that at the end
        return [(part.text, part.style or Style.null()) for part in segments if part.text]

    def with_style(self, text: str, style: Style) -> str:
        """The text between the sequences of its style."""
        visible_style = style.without_color if self._console.no_color else style
        # None, without colours, makes no sequences at all
        system = COLOR_SYSTEMS.get(self._console.color_system or "")
        return visible_style.render(text, color_system=system)


_VARIES = re.compile("[\u0300-\u036f\u200b-\u200d\u20d0-\u20ff\ufe00-\ufe0f\U0001f1e6-\U0001f1ff"
                     "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")  # fmt: skip
_EMOJI_VARIATION = "\ufe0f"


@lru_cache(maxsize=4096)
def character_cells(character: str) -> int:
    """The cells of one character: the larger number where libraries disagree."""
    from prompt_toolkit.utils import get_cwidth  # slow to import

    if character == _EMOJI_VARIATION:  # it has no width, but many terminals widen what it follows
        return 1
    # the live area would be drawn in the wrong row if a terminal needed more than expected
    return max(get_cwidth(character), get_character_cell_size(character))


def text_cells(text: str) -> int:
    """The cells of a text without line breaks, at least as many as a terminal uses."""
    if text.isascii():
        return len(text)
    return sum(map(character_cells, text))


def width_varies(text: str) -> bool:
    """Whether terminals disagree on the width of the text."""
    return not text.isascii() and _VARIES.search(text) is not None


def is_wide(character: str) -> bool:
    """Whether a character takes two cells, as in Chinese, Japanese and Korean."""
    first_wide = "\u1100"  # most characters are before it, and need no measuring
    return character >= first_wide and character_cells(character) > 1
