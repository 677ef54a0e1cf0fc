"""What bash itself does with a line: each command it starts is logged instead of run."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOME = "/home/u"
_DRIVER = r"""
command_not_found_handle() { builtin printf '%s\0' "$#" "$@" >"$LOG.$BASHPID"; return "$STATUS"; }
i=0
while IFS= builtin read -r -d '' line; do
    LOG=$ROOT/$i.log
    builtin cd "$ROOT/$i" && ( builtin eval "$line"; builtin wait ) </dev/null >/dev/null 2>&1
    i=$((i + 1))
done
"""


@dataclass
class Outcome:
    """The files that appeared, and the commands that ran, as their words."""

    files: set[str]
    commands: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])


def run_in_bash(lines: Sequence[str], root: Path, status: int = 0) -> list[Outcome]:
    """What every line does in an empty directory; each command ends with `status`."""
    bash = shutil.which("bash")
    assert bash is not None
    for index in range(len(lines)):
        (root / str(index)).mkdir(parents=True)
    environment = {
        "PATH": "/nonexistent",
        "ROOT": str(root),
        "STATUS": str(status),
        "HOME": "/home/u",
    }
    subprocess.run(
        [bash, "-c", _DRIVER],
        input=b"".join(os.fsencode(line) + b"\0" for line in lines),
        env=environment,
        capture_output=True,
        timeout=600,
        check=False,
    )
    outcomes = [Outcome({p.name for p in (root / str(i)).iterdir()}) for i in range(len(lines))]
    for log in root.glob("*.log.*"):
        _count, *words = log.read_bytes().split(b"\0")[:-1]
        outcomes[int(log.name.partition(".")[0])].commands[tuple(map(os.fsdecode, words))] += 1
    return outcomes
