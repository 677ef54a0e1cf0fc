"""The real program, in an empty home."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.config.paths import Paths
from tests.forked import SHEPHERD, run_forked, start_forked
from tests.patience import PATIENCE


def share_measurements(home: Path, tried: Path | None = None) -> None:
    """Give a home what was measured of this machine and tried of models in another one.

    It takes many seconds to measure, and a quarter of a second to try.
    """
    place = Paths.from_env({"HOME": str(home)}).tried_models
    place.parent.mkdir(parents=True)
    place.symlink_to(tried or Paths.from_env(os.environ).tried_models)


@dataclass(frozen=True)
class Program:
    """Runs `shepherd`, or a Python module, in `work` with nothing but PATH and HOME set."""

    home: Path
    work: Path
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def in_empty_home(cls, folder: Path) -> "Program":
        """With a file to work with."""
        home, work = folder / "home", folder / "work"
        for place in (home, work):
            place.mkdir()
        (work / "todo.txt").write_text("buy milk\n")
        return cls(home, work)

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), **self.extra}

    @property
    def config(self) -> Path:
        return self.home / ".config" / "shepherd"

    @property
    def sessions(self) -> list[Path]:
        return sorted((self.home / ".local/state/shepherd/sessions").glob("*.jsonl"))

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run `shepherd` to its end."""
        return run_forked([SHEPHERD, *arguments], self.env, stdin, 3 * PATIENCE, cwd=self.work)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `shepherd` with pipes."""
        return start_forked(
            [SHEPHERD, *arguments],
            self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=self.work,
        )

    def start_scripted(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        """Start `shepherd` with a scripted model."""
        return self.start(*self.scripted(script), *arguments)

    def scripted(self, script: str) -> list[str]:
        """The options that make `script` the model."""
        (self.home / "script").write_text(script)
        return ["--model", f"script:{self.home / 'script'}"]

    def run_scripted(
        self, script: str, *arguments: str, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `shepherd` with a scripted model to its end."""
        with self.start_scripted(script, *arguments) as process:
            out, err = process.communicate(stdin, timeout=3 * PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)
