"""The user's waiting time: for the version, for the first prompt, for the first answer."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.table import markdown, median_seconds, milliseconds, ratio

SHEPHERD = str(Path(sys.executable).with_name("shepherd"))
RUNS = 21

BARE_PROMPT = """
from prompt_toolkit import PromptSession
PromptSession().prompt("› ")
"""
BARE_ANSWER = """
import sys
from llama_cpp import Llama
llm = Llama(sys.argv[1], n_ctx=4096, verbose=False)
messages = [{"role": "user", "content": "hello"}]
print(llm.create_chat_completion(messages, temperature=0)["choices"][0]["message"]["content"])
"""


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as home:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }
        print(markdown(("what", "Shepherd", "beside", "time", "ratio"), _rows(env)))


def _rows(env: dict[str, str]) -> list[tuple[str, ...]]:
    from shepherd.models import builtin_model

    python = sys.executable
    model = str(builtin_model())
    version = [[SHEPHERD, "--version"], [python, "-c", "pass"]]
    prompt = [[SHEPHERD], [python, "-c", BARE_PROMPT]]
    answer = [
        [SHEPHERD, "-e", "hello", "--set", "sampling.temperature=0.0"],
        [python, "-c", BARE_ANSWER, model],
    ]
    return [
        _row("`shepherd --version`", "`python -c pass`", version, _run, env),
        _row("first prompt", "a bare prompt-toolkit prompt", prompt, _until_prompt, env),
        _row('`shepherd -e "hello"`', "a bare llama-cpp-python script", answer, _run, env),
    ]


def _row(
    what: str,
    peer: str,
    commands: list[list[str]],
    run: Callable[[list[str], dict[str, str]], None],
    env: dict[str, str],
) -> tuple[str, ...]:
    ours, theirs = median_seconds([partial(run, command, env) for command in commands], RUNS)
    return what, milliseconds(ours), peer, milliseconds(theirs), ratio(ours, theirs)


def _run(command: list[str], env: dict[str, str]) -> None:
    subprocess.run(
        command, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def _until_prompt(command: list[str], env: dict[str, str]) -> None:
    """Run `command` on a pty until it shows a prompt character, then kill it."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, env)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen, deadline = b"", perf_counter() + 30
    try:
        while "›".encode() not in seen:
            if not select.select([fd], [], [], deadline - perf_counter())[0]:
                raise TimeoutError(f"no prompt from {command[0]} within 30 s")
            seen += os.read(fd, 4096)
            if b"\x1b[6n" in seen:
                os.write(fd, b"\x1b[1;1R")
                seen = seen.replace(b"\x1b[6n", b"")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
