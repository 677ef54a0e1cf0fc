"""The interactive terminal on a shared conversation."""

import asyncio
from pathlib import Path

from shepherd.backends.cliclient.client import SharedSessionClient
from shepherd.backends.cliclient.vocabulary import UpdateKind, to_event
from shepherd.cli.connect.commands import remote_commands
from shepherd.cli.connect.remote import RemoteSession
from shepherd.cli.connect.viewer import ReplViewer
from shepherd.cli.images import described
from shepherd.cli.repl.approve import TerminalApprover
from shepherd.cli.repl.attach import mentioned_images
from shepherd.cli.repl.loop import TerminalLoop
from shepherd.cli.repl.paint import BLANK_LINE
from shepherd.cli.repl.replay import show_last_exchanges
from shepherd.cli.repl.status import Status, short_name
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.errors import InvalidRequestError
from shepherd.images import Image
from shepherd.messages import JsonObject, message_from_json


class RemoteRepl:
    """A terminal on the conversation of a server: prompts go there, everything comes from there."""

    def __init__(
        self, client: SharedSessionClient, config: Config, cwd: Path, paths: Paths
    ) -> None:
        self._client = client
        self._cwd = cwd
        self._status = Status(directory=client.url.partition("://")[2])
        loop = self._loop = TerminalLoop(
            config.terminal, paths, cwd, self._status, self._answer, place=" here"
        )
        self._surface, self._renderer = loop.surface, loop.renderer
        approver = TerminalApprover(loop.surface, loop.renderer)
        self._remote = RemoteSession(client, ReplViewer(loop.renderer), approver)
        loop.table.extend(remote_commands(client, loop.table, loop.surface, loop.leave))

    async def run(self) -> int:
        """Talk until the user leaves; raises ShepherdError when the server is lost."""
        async with self._remote.following() as session:
            self._greet(session)
            await self._loop.run(self._remote.lost())
        return 0

    async def _answer(self, text: str) -> None:
        self._renderer.user(text)
        try:
            images = await self._attach(text)
            self._renderer.activity.start("waiting for the server")
            await self._remote.ask(text, images)
        except InvalidRequestError:  # it is nowhere but here
            self._renderer.turn_over()
            self._surface.restore(text)
            raise

    async def _attach(self, text: str) -> tuple[Image, ...]:
        images = await asyncio.to_thread(mentioned_images, text, self._cwd)
        for image in images:
            self._renderer.notice(f"attached {described(image)}")
        return images

    def _greet(self, session: JsonObject) -> None:
        self._status.model = str(session["model"])
        self._status.context_used = int(session["context"]["used"])
        self._status.context_size = int(session["context"]["size"])
        self._loop.greet(f"{short_name(self._status.model)} at {self._client.url}")
        messages = [message_from_json(data) for data in session["messages"]]
        if messages:
            show_last_exchanges(messages, self._renderer)
        running = session["running"]
        if running:
            self._surface.show(BLANK_LINE)
            for piece in running["partial"]:
                event = to_event(UpdateKind(piece["kind"]), {"language": "", **piece})
                if event is not None:
                    self._renderer(*event)
