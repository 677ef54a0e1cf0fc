"""What a command may touch and use."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds on what a command uses; None means that there is no bound.

    `memory` and `file_size` are in bytes, and hold for each process and file. Where a control group
    can be made, `processes` and `memory` hold for the command as a whole.
    """

    processes: int | None = 1024
    memory: int | None = 8 << 30
    file_size: int | None = 16 << 30
    open_files: int | None = 4096
    cpu_seconds: int | None = 3600


@dataclass(frozen=True, slots=True)
class Profile:
    """What a box lets a command do; all paths are absolute.

    `root` is the session's working directory, which may be read and written, and `cwd` is where
    the command starts. The `protected` paths can be read, but neither changed nor replaced; one
    that does not exist is removed again if the command makes it. The `hidden` ones look empty.
    `readable` and `writable` are allowed besides the system and the toolchains below `home`.
    """

    root: Path
    cwd: Path
    home: Path
    protected: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    network: bool = False
    limits: Limits = field(default_factory=Limits)
