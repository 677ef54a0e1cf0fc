"""The interactive terminal on the questions of a server's agent: its user approves for clients."""

from pathlib import Path
from typing import cast

from shepherd.cli.connect.client import AGENT_UPDATES, SharedSessionClient
from shepherd.cli.connect.questions import RemoteQuestions
from shepherd.cli.render.status import Status
from shepherd.cli.repl.approve import TerminalApprover
from shepherd.cli.repl.commands import Command
from shepherd.cli.repl.commands.view import help_rows
from shepherd.cli.repl.completion.complete import Offers, no_offers
from shepherd.cli.repl.loop import TerminalLoop
from shepherd.config.paths import Paths
from shepherd.config.settings import Config
from shepherd.conversation.commands.command import Lines, Note
from shepherd.conversation.shared.protocol import UpdateKind
from shepherd.messages import JsonObject

NO_PROMPTS = "This server takes no prompts here: questions of its agent appear as they come."
LOST_ANSWERS = "the connection was lost for a while"


class ApprovalDesk:
    """A terminal that shows each open question and sends the answers; see `Frontend`."""

    place = " here"
    steering = None

    def __init__(
        self, client: SharedSessionClient, config: Config, cwd: Path, paths: Paths
    ) -> None:
        self._client = client
        status = Status(directory=client.url.partition("://")[2])
        loop = self._loop = TerminalLoop(config.terminal, paths, cwd, status, self)
        self._renderer = loop.renderer
        approver = TerminalApprover(loop.surface, loop.renderer)
        self._questions = RemoteQuestions(client, approver, self._warn)
        loop.table.extend(
            [
                Command("help", "", "what there is", self._help),
                Command("exit", "", "leave (also Ctrl+D)", self._exit),
                Command("quit", "", "leave", self._exit),
            ]
        )

    async def run(self) -> int:
        """Show questions until the user leaves; raises ShepherdError if the connection is lost."""
        state = await self._client.agent_questions()
        self._loop.greet(f"approvals for {self._client.url}")
        self._show(state)
        await self._loop.run(self._follow(str(state["update_id"])))
        return 0

    async def _follow(self, after: str) -> None:
        async for update in self._client.updates(after, AGENT_UPDATES):
            match update.kind:
                case UpdateKind.APPROVAL_NEEDED:
                    self._questions.ask(update.data)
                case UpdateKind.APPROVAL_DECIDED:
                    self._decided(update.data)
                case UpdateKind.SNAPSHOT:
                    self._warn(LOST_ANSWERS)
                    self._show(await self._client.agent_questions())
                case _:
                    pass

    def _show(self, state: JsonObject) -> None:
        questions = cast(list[JsonObject], state["approvals"])
        self._questions.keep_only({str(question["id"]) for question in questions})
        for question in questions:
            self._questions.ask(question)

    def _decided(self, data: JsonObject) -> None:
        is_open = self._questions.withdraw(str(data["id"]))
        self._renderer.turn_over()
        if is_open:
            by = f" by {data['by']}" if data.get("by") else ""
            self._renderer.notice(f"{data['tool']}: {data['decision']}{by}")

    def _warn(self, text: str) -> None:
        self._renderer.notice(text, "warn")

    async def answer(self, text: str) -> None:
        """Refuse a message."""
        self._warn(NO_PROMPTS)

    async def run_own(self, text: str) -> None:
        """Refuse a line of the shell."""
        self._warn(NO_PROMPTS)

    def turn_mode(self) -> None:
        """There is no mode."""

    def offers(self) -> Offers:
        """There is nothing to complete."""
        return no_offers()

    async def _help(self, argument: str) -> Lines:
        return [*help_rows(self._loop.table), Note(NO_PROMPTS)]

    async def _exit(self, argument: str) -> None:
        self._loop.leave()
