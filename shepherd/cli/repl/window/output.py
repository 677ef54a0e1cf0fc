"""The terminal as an output of prompt-toolkit, and the colours of its own parts."""

import sys

from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from shepherd.cli.terminal.paint import Painter

STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "placeholder": "ansibrightblack",
        "status": "ansibrightblack",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit ansibrightblack",
        "completion-menu.meta.completion.current": "noinherit reverse",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit reverse",
    }
)
_DEPTHS = {
    None: ColorDepth.MONOCHROME,
    "standard": ColorDepth.DEFAULT,
    "256": ColorDepth.DEPTH_8_BIT,
    "truecolor": ColorDepth.TRUE_COLOR,
}


def terminal_output(painter: Painter) -> Output:
    """Standard output as a terminal; the cursor's position is never queried."""
    size = Vt100_Output.from_pty(sys.stdout).get_size
    depth = _DEPTHS.get(painter.color_system, ColorDepth.DEPTH_4_BIT)
    return Vt100_Output(sys.stdout, size, default_color_depth=depth, enable_cpr=False)
