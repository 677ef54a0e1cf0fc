"""Starts the requested frontend."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from shepherd.cli.batch import oneshot
from shepherd.cli.request import FrontendChoice, load_settings
from shepherd.cli.terminal.attachments import load_images
from shepherd.config.provider_book import ProviderBook
from shepherd.config.section import ApproveMode
from shepherd.config.settings import Config
from shepherd.conversation.build import open_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.model_choice import model_of_flags
from shepherd.errors import ConfigError, UsageError
from shepherd.messages import Message


def start_frontend(request: FrontendChoice) -> int:
    """Run a frontend to its end and return the exit code; raises ShepherdError."""
    cwd = _working_directory()

    def read(directory: Path = cwd) -> Config:
        return model_of_flags(load_settings(directory, os.environ, request.overrides))

    config = read()
    if request.connect:
        from shepherd.cli.connect.start import run_connected

        return asyncio.run(ended_by_signals(run_connected(config, cwd, request)))
    providers = ProviderBook.from_env(os.environ, request.provider)
    if request.fit:
        from shepherd.cli.commands.models.fit import show_plan

        return show_plan(config, providers, as_json=request.json_lines)
    if request.acp:
        from shepherd.cli.acp.serve import serve_editor

        return asyncio.run(ended_by_signals(serve_editor(config, read, providers)))
    if request.cliserver:
        from shepherd.cli.serve.shared import serve_conversation

        # servers handle signals themselves: running requests may end first
        serving = serve_conversation(
            config, cwd, request.start, providers, insecure=request.insecure
        )
        return asyncio.run(serving)
    if request.server:
        from shepherd.cli.serve.http import serve_config

        serving = serve_config(config, cwd, providers, read, insecure=request.insecure)
        return asyncio.run(serving)
    return asyncio.run(_converse(config, cwd, request, providers))


def _working_directory() -> Path:
    """The working directory; raises ConfigError if another program has removed it."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise ConfigError("The working directory was removed; change to another one.") from error


async def _converse(
    config: Config, cwd: Path, request: FrontendChoice, providers: ProviderBook
) -> int:
    """Run the frontend of one conversation; a signal ends only the frontend, then it is closed."""
    opened = open_conversation(config, os.environ, cwd, request.start, providers)
    async with opened as conversation:
        return await ended_by_signals(_frontend(conversation, request))


async def ended_by_signals(frontend: Coroutine[Any, Any, int]) -> int:
    """The exit code of a frontend, or the code for the signal that ended it."""
    with _signals_cancel() as received:
        try:
            return await frontend
        except asyncio.CancelledError:
            if not received:
                raise
            return 128 + received[0]  # as a shell reports a program that a signal has ended


async def _frontend(conversation: Conversation, request: FrontendChoice) -> int:
    """Run JSON lines, one answer, or the prompt if there is a terminal to talk in."""
    if request.json_lines:
        from shepherd.cli.batch.jsonlines import run_json_lines

        return await run_json_lines(conversation, request.prompt)
    if request.prompt is not None or request.images or not sys.stdin.isatty():
        return await _answer(conversation, request)
    from shepherd.cli.repl.app import Repl

    return await Repl(conversation).run()


async def _answer(conversation: Conversation, request: FrontendChoice) -> int:
    """Answer one question, or run a command such as `/usage`; piped text belongs to a question."""
    images = load_images(request.images)
    if request.prompt is not None and request.prompt.lstrip().startswith("/") and not images:
        command = oneshot.question_command(conversation, request.prompt)
        if command is not None:  # a question may begin with a slash too
            return await oneshot.print_command(conversation, *command)
    prompt = oneshot.with_context(request.prompt or "", oneshot.read_piped())
    if not prompt and not images:
        raise UsageError("There is no terminal to talk in; ask with -e, or pipe a question in.")
    message = Message.user(prompt, images)
    if conversation.policy.mode is ApproveMode.REVIEW:
        return await oneshot.run_for_patch(conversation, message, apply=request.apply)
    if request.apply:
        raise UsageError("--apply goes with --approve review; other modes change files at once.")
    return await oneshot.run_oneshot(conversation, message)


@contextmanager
def _signals_cancel() -> Generator[list[int]]:
    """SIGTERM and SIGHUP cancel the task, so that tools and session end in order."""
    received: list[int] = []  # signals
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def cancel(number: int) -> None:
        received.append(number)
        if task is not None:
            task.cancel()

    numbers = (signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, partial(cancel, number))
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
