"""Everyday commands, run plainly and in each sandbox."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.sandbox.running import run
from bench.table import markdown
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.profile import Profile

_COMMANDS = Path(__file__).with_name("everyday.txt")
_SERVER = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/README.md").status)
"""
_NODE_SERVER = """
const http = require("http");
const s = http.createServer((q, r) => r.end("ok")).listen(0, "127.0.0.1", () =>
  http.get({ port: s.address().port, host: "127.0.0.1" }, r => {
    console.log(r.statusCode);
    process.exit(0);
  }));
"""
_FILES = {
    "README.md": "hello\nworld\n",
    "main.c": '#include <stdio.h>\nint main(void) { printf("hello\\n"); return 0; }\n',
    "Makefile": "all: program\nprogram: main.c\n\tcc -o $@ $<\nclean:\n\trm -f program\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.9)\nproject(h C)\nadd_executable(h main.c)",
    "tests/__init__.py": "",
    "tests/test_unit.py": (
        "import unittest\n\n\nclass Test(unittest.TestCase):\n"
        "    def test_one(self):\n        self.assertEqual(1, 1)\n"
    ),
    "package.json": (
        '{"name": "h", "version": "1.0.0", "scripts": {"test": "node -e \\"process.exit(0)\\"", '
        '"build": "mkdir -p built && cp main.c built/"}}\n'
    ),
    "Cargo.toml": '[package]\nname = "h"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/main.rs": 'fn main() { println!("hello"); }\n#[test]\nfn works() { assert_eq!(1, 1); }\n',
    "go/main.go": "package main\nfunc main() {}\n",
    "Hello.java": "class Hello { public static void main(String[] a) { System.out.print(1); } }",
    "run.sh": "#!/bin/sh\necho ran\n",
    "local_server.py": _SERVER,
    "server.js": _NODE_SERVER,
    "change.patch": "--- a/main.c\n+++ b/main.c\n@@ -1,2 +1,3 @@\n+/* x */\n #include <stdio.h>\n"
    ' int main(void) { printf("hello\\n"); return 0; }\n',
    ".env": "KEY=1\n",
    ".gitignore": "target/\nbuild*/\n",
}


@dataclass(slots=True)
class Everyday:
    """The results: the lines that ran plainly, and the reasons for failures in a sandbox."""

    ran: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])
    failures: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def table(self) -> str:
        """The share of successes in each sandbox."""
        rows = [
            [
                name,
                f"{len(self.ran) - len(f)} of {len(self.ran)}",
                f"{1 - len(f) / len(self.ran):.1%}",
            ]
            for name, f in self.failures.items()
        ]
        return markdown(["box", "run unchanged", "share"], rows)

    def details(self) -> str:
        """The failures, the missing programs, and the lines that fail plainly too."""
        lines = [
            f"{name}: `{line}`: {why}"
            for name, failures in self.failures.items()
            for line, why in failures.items()
        ]
        lines.append(f"not installed: {', '.join(self.missing) or 'none'}")
        lines.append(f"fail plainly too: {', '.join(self.broken) or 'none'}")
        return "\n".join(lines)


def compare(boxes: Sequence[Box]) -> Everyday:
    """Run each line plainly and in each sandbox, in a project of its own."""
    result = Everyday()
    lines = [line.split(" | ", 1) for line in _COMMANDS.read_text("utf-8").splitlines()]
    path = _environment()["PATH"]
    result.missing = sorted({name for name, _ in lines if shutil.which(name, path=path) is None})
    present = [line for name, line in lines if name not in result.missing]
    plain = _run_all(None, present)
    result.ran = [line for line in present if line not in plain]
    result.broken = list(plain)
    for box in boxes:
        failed = _run_all(box, present)
        result.failures[box.name] = {n: why for n, why in failed.items() if n in result.ran}
    return result


def _environment() -> dict[str, str]:
    binaries = Path(sys.executable).parent
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(binaries.parent)}


def _run_all(box: Box | None, lines: Sequence[str]) -> dict[str, str]:
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as base:
        root = Path(base).resolve() / "project"
        _make_project(root)
        for line in lines:
            program = Program(["bash", "-c", line], root, _environment())
            code, output = run(box, _profile(root, line), program)
            if code != 0:
                failures[line] = f"exit code {code}: {output[-160:]}".replace("\n", " ")
    return failures


def _profile(root: Path, line: str) -> Profile:
    """The profile of the shell tool: git may write the repository, but not its hooks."""
    git, hidden = root / ".git", (root / ".env",)
    if line.startswith("git "):
        home = Path.home()
        return Profile(root, root, home, (), hidden, writable=(git,), repositories=(git,))
    return Profile(root, root, Path.home(), (git, root / ".shepherd.toml"), hidden)


def _make_project(root: Path) -> None:
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    _make_wheel(root / "dist")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    (root / "README.md").write_text("hello\nworld\nmore\n", "utf-8")
    for key, value in (("user.name", "a"), ("user.email", "a@example.org")):
        subprocess.run(["git", "config", key, value], cwd=root, check=True)
    subprocess.run(["git", "commit", "-qam", "second"], cwd=root, check=True)


def _make_wheel(folder: Path) -> None:
    folder.mkdir()
    information = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "x = 1\n")
        wheel.writestr(
            f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{information}/RECORD", "")
