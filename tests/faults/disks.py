"""Disks that are full or can't be written to, mounted where only one process tree sees them."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forked import SHEPHERD, run_forked
from tests.patience import PATIENCE

_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
_MOUNT = """
set -e
mount -t tmpfs -o size="$DISK_BYTES" none "$HOME"
if [ -n "$PREPARE" ]; then sh -c "$PREPARE" >/dev/null 2>&1 || true; fi
if [ -n "$READ_ONLY" ]; then mount -o remount,ro "$HOME"; fi
echo mounted
read -r _
cp -a "$HOME/." "$KEPT/"
"""


@dataclass(frozen=True)
class Disk:
    """A home on a disk of `size` bytes; `prepare` is a shell line that fills it beforehand."""

    home: Path
    work: Path
    kept: Path
    size: int = 1 << 20
    prepare: str = ""
    read_only: bool = False

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run `shepherd` there; what it left in its home is then in `kept`."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        disk = {
            "KEPT": str(self.kept),
            "DISK_BYTES": str(self.size),
            "PREPARE": self.prepare,
            "READ_ONLY": "yes" if self.read_only else "",
        }
        pipe = subprocess.PIPE
        command = [*_NAMESPACE, "sh", "-c", _MOUNT]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment | disk) as mounted:
            assert mounted.stdout is not None
            assert mounted.stdout.readline() == b"mounted\n"
            done = run_forked(
                [SHEPHERD, *arguments],
                environment,
                stdin,
                3 * PATIENCE,
                cwd=self.work,
                namespaces=mounted.pid,
            )
            mounted.communicate(b"\n", timeout=PATIENCE)
        assert mounted.returncode == 0
        return done


def need_namespaces() -> None:
    """Skip where no disk can be mounted; fail in CI, where that must be possible."""
    able = shutil.which("unshare") is not None
    able = able and subprocess.run([*_NAMESPACE, "true"], check=False).returncode == 0
    if not able and os.environ.get("CI"):
        pytest.fail("the tests of full disks need user namespaces")
    if not able:
        pytest.skip("no user namespaces here")
