"""Chooses between one question and a terminal."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shepherd import errors, events
from shepherd.cli.approval.plain_question import choose_approver
from shepherd.cli.batch.oneshot import PlainOutput, exit_code, print_text, read_piped, with_context
from shepherd.cli.connect.client import NoSessionError, SharedSessionClient
from shepherd.cli.connect.remote import RemoteSession, Viewer
from shepherd.cli.request import FrontendChoice
from shepherd.cli.terminal import attachments, secrets
from shepherd.config.settings import Config
from shepherd.conversation.commands.table import find_command
from shepherd.images import Image


@dataclass(frozen=True, slots=True)
class QuestionViewer(Viewer):
    """Shows only the updates of the question."""

    output: PlainOutput

    def event(self, event: events.Event, *, mine: bool) -> None:
        if mine:
            self.output.receive(event)

    def queued(self, position: int) -> None:
        self.output.note(f"shepherd: waiting; position {position} in the queue")

    def notice(self, text: str) -> None:
        self.output.note(f"shepherd: {text}")


async def ask_once(client: SharedSessionClient, prompt: str, images: Sequence[Image] = ()) -> int:
    """Ask, show the answer, return the exit code; raises ShepherdError, BrokenPipeError."""
    output = PlainOutput(live=sys.stdout.isatty())
    remote = RemoteSession(client, QuestionViewer(output), choose_approver())
    async with remote.following():
        try:
            reason = await remote.ask(prompt, images)
        finally:
            output.finish()
    if output.broken:
        raise BrokenPipeError
    return exit_code(reason, output.denied)


KEY_VARIABLE = "SHEPHERD_API_KEY"


async def run_connected(config: Config, cwd: Path, request: FrontendChoice) -> int:
    """Talk in the conversation at `request.connect`; the exit code. Raises ShepherdError."""
    key = request.api_key or os.environ.get(KEY_VARIABLE, "")
    if key == secrets.STDIN:
        key = secrets.read_key("Key: ")
    url = request.connect if "://" in request.connect else f"http://{request.connect}"
    async with SharedSessionClient(url, key) as client:
        if request.prompt is None and sys.stdin.isatty():
            return await _terminal(client, config, cwd)
        images = attachments.load_images(request.images)
        if request.prompt and not images and find_command(request.prompt) is not None:
            print_text(await client.command(request.prompt))
            return 0
        prompt = with_context(request.prompt or "", read_piped())
        if not prompt:
            raise errors.UsageError("There is no terminal to talk in; ask with -e, or pipe in.")
        return await ask_once(client, prompt, images)


async def _terminal(client: SharedSessionClient, config: Config, cwd: Path) -> int:
    """The terminal on a shared session, or on the questions of a server's agent."""
    try:
        await client.session()
    except (NoSessionError, errors.AccessError) as error:  # the key may be one for approvals alone
        from shepherd.cli.connect.repl import ApprovalDesk

        try:
            return await ApprovalDesk(client, config, cwd).run()
        except NoSessionError:  # neither of both: the first refusal tells more
            raise error from None
    from shepherd.cli.connect.repl import RemoteRepl

    return await RemoteRepl(client, config, cwd).run()
