"""`python -m tests.cli.scripted SCRIPT [--json] [-e QUESTION] [--continue]`: as `shepherd`."""

import sys
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.backends.scripted import ScriptedBackend, load_script
from shepherd.cli.app import guarded
from shepherd.cli.launch import launch
from shepherd.cli.request import Launch, SessionStart
from shepherd.config.settings import Config


def main() -> int:
    script, *arguments = sys.argv[1:]

    async def open_backend(config: Config) -> Backend:
        return ScriptedBackend(load_script(Path(script)))

    prompt = arguments[arguments.index("-e") + 1] if "-e" in arguments else None
    start = SessionStart(latest="--continue" in arguments)
    request = Launch({}, prompt, "--json" in arguments, start)
    return guarded(lambda: launch(request, open_backend))


if __name__ == "__main__":
    sys.exit(main())
