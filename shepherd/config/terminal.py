"""The `[terminal]` section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shepherd.config.section import Section


class TerminalSection(Section):
    """The interactive prompt."""

    edit_mode: Annotated[
        Literal["emacs", "vi"], Field(description="Key bindings of the prompt.")
    ] = "emacs"
    show_thinking: Annotated[bool, Field(description="Show the model's reasoning, dimmed.")] = True
    code_theme: Annotated[
        str,
        Field(
            min_length=1,
            description="Pygments style of code blocks; `auto`: the terminal's own colours.",
        ),
    ] = "auto"
    notify: Annotated[
        bool,
        Field(
            description="Ring the bell, and notify, when a turn of ten seconds ends or a question "
            "waits while the terminal does not have the focus."
        ),
    ] = True
    title: Annotated[bool, Field(description="Set the window's title.")] = True
    prices: Annotated[
        list[Annotated[str, Field(pattern=r"^\S+( \d+(\.\d+)?){2,3}$")]],
        Field(
            description="Prices of models in place of their providers', as `MODEL READ WRITTEN "
            "CACHED` in US dollars for a million tokens; without CACHED, cached tokens cost as "
            "much as others."
        ),
    ] = []
    save_sessions: Annotated[
        bool, Field(description="Keep conversations for `--continue` and `--resume`.")
    ] = True
