"""The settings of `[undo]`."""

from typing import Annotated

from pydantic import Field

from shepherd.config.sections import Section


class UndoSection(Section):
    """Files as they were before tools changed them, for `/undo` and `/rewind`."""

    enabled: Annotated[
        bool,
        Field(
            description="Keep files before tools change them. Nothing is kept if "
            "`terminal.save_sessions` is off."
        ),
    ] = True
    max_mib: Annotated[
        int, Field(ge=1, le=1_048_576, description="MiB of kept files; the oldest go first.")
    ] = 512
    max_days: Annotated[
        int, Field(ge=1, le=3650, description="Days after which kept files are removed.")
    ] = 30
    file_mib: Annotated[
        int, Field(ge=1, le=1024, description="MiB of the largest file that is kept.")
    ] = 8
    command_mib: Annotated[
        int,
        Field(
            ge=0,
            le=65_536,
            description="MiB that are kept of the working directory before a command runs; "
            "0 = changes of commands can't be undone.",
        ),
    ] = 64
