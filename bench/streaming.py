"""What the terminal writes while an answer arrives: bytes, and seconds of CPU."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bench.table import markdown, ratio

CHUNK = 20
"""Characters that arrive together."""
CHUNK_SECONDS = 0.02
COLUMNS, ROWS = 80, 24
END = "That is the end."
_SENTENCE = "The river runs down to the sea and the town keeps its boats by the old stone bridge "


def texts() -> dict[str, str]:
    """The answers by kind."""
    words = _SENTENCE * 90
    prose = "\n\n".join(words[at : at + 700].strip() for at in range(0, len(words), 700))
    code = "\n".join(f"    value_{n} = compute(value_{n - 1}, {n})  # step {n}" for n in range(120))
    items = "\n".join(
        f"- **Item {n}**: `name_{n}` keeps its boats by the bridge" for n in range(120)
    )
    rows = "\n".join(f"| {n} | river {n} | keeps its boats | {n * 37} |" for n in range(400))
    return {
        "prose": prose,
        "code": f"```python\n{code}\n```",
        "list": items,
        "table of 400 rows": f"| n | name | text | value |\n|--:|---|---|--:|\n{rows}",
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """What one answer took."""

    written: int
    cpu_seconds: float
    seconds: float


def main() -> None:
    """Print the table."""
    header = ("answer", "text", "styled", "written", "written/styled", "CPU", "CPU share")
    print(f"Answers in chunks of {CHUNK} characters every {CHUNK_SECONDS * 1000:.0f} ms.\n")
    print(markdown(header, list(_rows())))


def _rows() -> Iterator[tuple[str, ...]]:
    for name, text in texts().items():
        cost = measure(text)
        styled = len(styled_text(text).encode())
        yield (
            name,
            f"{len(text.encode()):,}",
            f"{styled:,}",
            f"{cost.written:,}",
            ratio(cost.written, styled),
            f"{cost.cpu_seconds:.2f} s",
            f"{100 * cost.cpu_seconds / cost.seconds:.0f}%",
        )


def styled_text(text: str) -> str:
    """The text as it is shown, written at once."""
    from shepherd.cli.render.rows import RowWriter
    from shepherd.cli.render.views import AnswerView
    from shepherd.cli.terminal.paint import Painter

    painter = Painter()
    view = AnswerView(painter)
    return RowWriter(painter).write([*view.feed(text), *view.finish()], COLUMNS)


def measure(text: str) -> Cost:
    """Run the program on a pty with a scripted model that answers with `text`."""
    with tempfile.TemporaryDirectory() as home:
        script = Path(home) / "script.txt"
        script.write_text(_script(text), "utf-8")
        pid, terminal = pty.fork()
        if pid == 0:
            _become_shepherd(home, script)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        try:
            return _measure(pid, terminal)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)


def _script(text: str) -> str:
    whole = f"{text}\n\n{END}"
    chunks = [whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK)]
    return "".join(f"text: {json.dumps(chunk)}\ndelay: {CHUNK_SECONDS}\n" for chunk in chunks)


def _become_shepherd(home: str, script: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }
    os.chdir(home)
    shepherd = str(Path(sys.executable).with_name("shepherd"))
    os.execve(shepherd, [shepherd, "--model", f"script:{script}"], env)


def _measure(pid: int, terminal: int) -> Cost:
    _read_until(terminal, b"approve: ask")
    os.write(terminal, b"go")
    _read_until(terminal, b"go")
    _read_quiet(terminal)
    before, started = _cpu_seconds(pid), perf_counter()
    os.write(terminal, b"\r")
    written = _read_until(terminal, END.split()[-1].encode())
    return Cost(len(written), _cpu_seconds(pid) - before, perf_counter() - started)


def _read_until(terminal: int, end: bytes) -> bytes:
    seen, deadline = b"", perf_counter() + 120
    while end not in seen:
        if not select.select([terminal], [], [], deadline - perf_counter())[0]:
            raise TimeoutError(f"no {end!r} within 120 s: {seen[-200:]!r}")
        seen += os.read(terminal, 65536)
    return seen


def _read_quiet(terminal: int) -> None:
    while select.select([terminal], [], [], 0.5)[0]:
        os.read(terminal, 65536)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
