"""Chooses between one question and a terminal."""

import os
import sys
from pathlib import Path

from shepherd.backends.cliclient.client import SharedSessionClient
from shepherd.cli.ask_key import STDIN, read_key
from shepherd.cli.errors import UsageError
from shepherd.cli.request import Launch
from shepherd.config.paths import Paths
from shepherd.config.settings import Config

KEY_VARIABLE = "SHEPHERD_API_KEY"


async def run_connected(config: Config, cwd: Path, request: Launch) -> int:
    """Talk in the conversation at `request.connect`; the exit code. Raises ShepherdError."""
    key = request.api_key or os.environ.get(KEY_VARIABLE, "")
    if key == STDIN:
        key = read_key("Key: ")
    async with SharedSessionClient(_base_url(request.connect), key) as client:
        if request.prompt is not None or not sys.stdin.isatty():
            from shepherd.cli.connect.question import ask_once
            from shepherd.cli.images import load_images
            from shepherd.cli.oneshot import read_piped, with_context

            images = load_images(request.images)
            prompt = with_context(request.prompt or "", read_piped())
            if not prompt:
                raise UsageError("There is no terminal to talk in; ask with -e, or pipe in.")
            return await ask_once(client, prompt, images)
        from shepherd.cli.connect.repl import RemoteRepl

        return await RemoteRepl(client, config, cwd, Paths.from_env(os.environ)).run()


def _base_url(given: str) -> str:
    return given if "://" in given else f"http://{given}"
