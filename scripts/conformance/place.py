"""Where judges live: their own environments, clones and packages, outside of Shepherd's."""

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers import SHEPHERD, served
from scripts.conformance.verdict import Skipped

CACHE = Path.home() / ".cache" / "shepherd-conformance"


def python(name: str, *packages: str) -> Path:
    """The interpreter of an environment of its own with these packages, made on the first call."""
    folder = CACHE / f"python-{name}"
    interpreter = folder / "bin" / "python"
    stamp = folder / "packages"
    if not stamp.exists() or stamp.read_text("utf-8").split() != list(packages):
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        _installed([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        _installed([uv, "pip", "install", "--quiet", "--python", str(interpreter), *packages])
        stamp.write_text(" ".join(packages), "utf-8")
    return interpreter


def version(interpreter: Path, package: str) -> str:
    """The version of a package in an environment."""
    program = f"import importlib.metadata as m; print(m.version('{package}'))"
    command = [str(interpreter), "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def node(name: str, *packages: str) -> Path:
    """A folder whose `node_modules` has these packages of npm, made on the first call."""
    if not shutil.which("npm"):
        raise Skipped("it needs Node.js, and npm is not installed")
    folder = CACHE / f"node-{name}"
    stamp = folder / "packages"
    if not stamp.exists() or stamp.read_text("utf-8").split() != list(packages):
        _installed(["npm", "install", "--silent", "--prefix", str(folder), *packages])
        stamp.write_text(" ".join(packages), "utf-8")
    return folder


def repository(name: str) -> Path:
    """A clone of a repository of GitHub, named `owner/name`, made on the first call."""
    folder = CACHE / name.replace("/", "+")
    if not folder.exists():
        address = f"https://github.com/{name}"
        _installed(["git", "clone", "--quiet", "--depth", "1", address, str(folder)])
    return folder


def sdist(name: str, version: str) -> Path:
    """The sources of a release on PyPI, downloaded on the first call."""
    folder = CACHE / f"{name}-{version}"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--dest", str(CACHE), f"{name}=={version}"]
        _installed(command)
        with tarfile.open(CACHE / f"{name}-{version}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return folder


def commit(folder: Path) -> str:
    """The commit of a clone, and its day."""
    command = ["git", "log", "-1", "--format=%h of %cs"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _installed(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Skipped(f"`{' '.join(command[:3])}` failed, so it can't be had here ({last})")


@contextmanager
def shepherd_server(work: Path, *options: str, model: str = "pup") -> Generator[str]:
    """`shepherd --server` with an empty home; yields its base URL."""
    home = work / "home"
    home.mkdir(parents=True, exist_ok=True)
    command = [SHEPHERD, "--server", "--port", "0", "--model", model, *options]
    with served(command, {"PATH": os.environ["PATH"], "HOME": str(home)}) as url:
        yield url


def tested(report: Path, command: Sequence[str], **options: Any) -> list[tuple[str, str]]:
    """The tests of a run of pytest that were not skipped, with what was wrong, "" if nothing.

    `options` are those of `subprocess.run`. Raises Skipped for a run without a report.
    """
    command = [*command, "-W", "ignore", f"--junitxml={report}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    if not report.exists():
        raise Skipped(f"its tests did not run ({done.stdout[-200:]})")
    return [
        (
            f"{test.get('classname')}.{test.get('name')}",
            "\n".join(
                f"{p.get('message')}\n{p.text}" for p in test if p.tag in ("failure", "error")
            ),
        )
        for test in ET.parse(report).getroot().iter("testcase")
        if test.find("skipped") is None
    ]
