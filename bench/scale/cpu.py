"""The CPU time of a deployment and of its client."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_REPLICA = b"ray::ServeReplica:shepherd:Engine"


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds of CPU: of the replicas, and of this process and all others of the deployment."""

    replicas: float
    others: float

    @classmethod
    def of(cls, home: str) -> "CpuTimes":
        """Those of all processes with this HOME."""
        replicas, others = 0.0, sum(os.times()[:2])
        for folder in Path("/proc").iterdir():
            with suppress(OSError):  # a process may end meanwhile
                if folder.name.isdigit() and _has_home(folder, home):
                    seconds = _seconds(folder)
                    is_replica = (folder / "cmdline").read_bytes().startswith(_REPLICA)
                    replicas += seconds if is_replica else 0.0
                    others += 0.0 if is_replica else seconds
        return cls(replicas, others)

    def since(self, before: "CpuTimes") -> "CpuTimes":
        """The time between two of them."""
        return CpuTimes(self.replicas - before.replicas, self.others - before.others)


def _has_home(folder: Path, home: str) -> bool:
    return f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0")


def _seconds(folder: Path) -> float:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
