"""A conversation as a Python object."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from shepherd.config.section import ApproveMode
from shepherd.conversation import context_use, own_commands
from shepherd.conversation.commands.table import run_own_command
from shepherd.conversation.compaction import Compaction, SuggestedFact, compact, remember
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.history import SessionHistory
from shepherd.errors import ShepherdError
from shepherd.events import EventCallback, Notice, Topic
from shepherd.images import Image, check_count, load_image, read_image
from shepherd.messages import Message
from shepherd.sdk.turn import Answer, End, Turn, TurnWork
from shepherd.tools.permissions.approval import Approver
from shepherd.tools.shell.background import BackgroundCommand
from shepherd.turn import TurnOutcome, run_turn
from shepherd.undo.log import MoveResult

ImageSource: TypeAlias = str | Path | bytes | Image
"""An image: its file, its bytes, or itself."""


class Chat:
    """An open conversation; made by `shepherd.open`. It answers one prompt at a time."""

    def __init__(
        self, conversation: Conversation, approver: Approver, opening: object = None
    ) -> None:
        """`opening` is kept: Python would close the conversation as soon as it is gone."""
        self._opening = opening
        self._conversation = conversation
        self._tools = conversation.tool_runner(approver)
        self._last_turn: TurnWork | None = None
        """The turn that runs, or the last one that has ended."""
        self._waiting_notices: list[Notice] = []
        """Notices for the next turn."""
        conversation.notices.listen(self._take_notice)

    @property
    def id(self) -> str:
        """The id of the session; it opens a saved session again."""
        return self._conversation.session.id

    @property
    def model(self) -> str:
        """The model that answers, by its name in the backend."""
        return self._conversation.slot.model_name

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model is offered."""
        return [spec.name for spec in self._conversation.session.tools]

    @property
    def messages(self) -> list[Message]:
        """The messages so far."""
        return list(self._conversation.session.messages)

    async def context(self) -> context_use.ContextUse:
        """The tokens of each part of the next prompt, counted with the model's own template."""
        backend = await self._conversation.backend()
        return await context_use.measure_context(self._conversation.session, backend)

    def ask(self, prompt: str, images: Iterable[ImageSource] = ()) -> Turn:
        """Answer a prompt, running tools until the model is done; iterate over the events.

        Raises ImageError at once. Reading the events raises ShepherdError if the model can't
        answer, or while another prompt is being answered.
        """
        message = _message(prompt, images)

        async def run(callback: EventCallback) -> TurnOutcome:
            conversation = self._conversation
            backend, prompted = await conversation.prepare(message)
            return await run_turn(
                conversation.session,
                prompted,
                backend,
                self._tools,
                callback,
                conversation.limits,
            )

        return Turn(TurnWork(run), self._begin)

    async def answer(self, prompt: str, images: Iterable[ImageSource] = ()) -> Answer:
        """The complete answer to a prompt; raises the errors of `ask`."""
        async with self.ask(prompt, images) as turn:
            async for event in turn:
                if isinstance(event, End):
                    return event.answer
        raise ShepherdError("The turn ended without an answer.")

    def steer(self, text: str, images: Iterable[ImageSource] = ()) -> None:
        """Let a message join the running turn at its next step, or after its last answer.

        Without a running turn, or if the turn fails before, it joins the next turn. Raises
        ImageError.
        """
        self._conversation.additions.steer(_message(text, images))

    @property
    def approve_mode(self) -> ApproveMode:
        """The approval mode, such as `plan`; it can be set at any time."""
        return self._conversation.policy.mode

    @approve_mode.setter
    def approve_mode(self, mode: ApproveMode | str) -> None:
        self._conversation.policy.mode = ApproveMode(mode)

    async def undo(self, count: int = 1, *, force: bool = False) -> MoveResult:
        """Undo the last changes of tools to files; the conversation must be saved (`save=True`).

        Raises UndoError and changes nothing if something else changed a file since, unless `force`.
        """
        return await self._idle_history().files.undo(count, force=force)

    async def redo(self, count: int = 1, *, force: bool = False) -> MoveResult:
        """Make the last undone changes again; raises UndoError like `undo`."""
        return await self._idle_history().files.redo(count, force=force)

    async def diff(self) -> str:
        """The changes of files since the conversation began; "" if there are none."""
        return await self._idle_history().files.diff()

    async def rewind(self, number: int, *, files: bool = False, force: bool = False) -> Message:
        """Go back to just before the user's message `number`, counted from 1, and return it.

        The messages from there on stay in the session's file as a branch. With `files`, the files
        go back too. Raises SessionError if there is no such message, and UndoError like `undo`.
        """
        history = self._idle_history()
        prompts = {prompt.number: prompt.message for prompt in history.prompts()}
        await history.rewind(number, files=files, force=force)  # refuses an unknown number
        return prompts[number]

    async def compact(self, keep: str = "") -> Compaction:
        """Let the model write a summary in the place of old turns; `keep` says what matters most.

        The memory keeps the messages, if there is one. Facts that the model would keep are in the
        result; `remember` stores one. Cancelling changes nothing. Raises InvalidRequestError if
        there is nothing to summarise.
        """
        self._check_idle()
        conversation = self._conversation
        return await compact(conversation.session, await conversation.backend(), keep)

    async def remember(self, name: str, value: str) -> None:
        """Store a fact for later conversations in this directory; raises MemoryStoreError."""
        conversation = self._conversation
        await remember(conversation.memory, conversation.cwd, SuggestedFact(name, value))

    async def run_command(self, line: str, *, shared: bool = True) -> own_commands.OwnCommand:
        """Run a line in the user's shell: without a question, and outside the sandbox.

        The model reads the output with the next prompt, unless `shared` is False. Cancelling ends
        the command. Raises InvalidRequestError where the model may not run commands either: without
        tools, in the mode `none`, and if a rule denies the line.
        """
        return await run_own_command(self._conversation, line, shared=shared)

    @property
    def jobs(self) -> list[BackgroundCommand]:
        """The commands in the background, the oldest first."""
        return self._conversation.background.all

    async def end_job(self, id: str) -> None:
        """End a command in the background; raises ToolError if there is none of this id."""
        commands = self._conversation.background
        await commands.kill(commands.find(id), by_user=True)

    async def keep_job(self, id: str) -> str:
        """Keep what a command in the background has changed until now, as far as that is approved.

        Returns a sentence about it; raises ToolError if there is none of this id.
        """
        commands = self._conversation.background
        return await commands.keep(commands.find(id))

    def cancel(self) -> None:
        """Stop the running turn, if any; it ends with the reason `cancelled`."""
        if self._last_turn is not None:
            self._last_turn.cancel()

    async def aclose(self) -> None:
        """Stop the running turn; `shepherd.open` does it and closes the rest."""
        self.cancel()
        if self._last_turn is not None:
            await self._last_turn.wait()

    def _idle_history(self) -> SessionHistory:
        """The conversation's past; raises ShepherdError while a prompt is being answered."""
        self._check_idle()
        return self._conversation.history

    def _check_idle(self) -> None:
        if self._last_turn is not None and self._last_turn.running:
            raise ShepherdError("This conversation is answering a prompt; end or cancel it first.")

    async def _begin(self, work: TurnWork) -> None:
        """Start a turn; the previous one must have ended or have lost its reader."""
        previous = self._last_turn
        if previous is not None and previous.running:
            if not previous.cancelled:
                raise ShepherdError(
                    "This conversation is answering another prompt; read that answer to its end "
                    "or cancel it first."
                )
            await previous.wait()
        self._last_turn = work
        notices, self._waiting_notices = self._waiting_notices, []
        for notice in notices:
            work.emit(notice)
        work.start()

    def _take_notice(self, text: str) -> None:
        """Send a notice of the conversation to the running turn, or keep it for the next one."""
        notice = Notice(text, Topic.NOTICE)
        if self._last_turn is not None and self._last_turn.running:
            self._last_turn.emit(notice)
        else:
            self._waiting_notices.append(notice)


def _message(text: str, images: Iterable[ImageSource]) -> Message:
    """The user's message; raises ImageError for too many images, or one that can't be read."""
    sources = list(images)
    check_count(sources)
    return Message.user(text, tuple(_image(source) for source in sources))


def _image(source: ImageSource) -> Image:
    if isinstance(source, Image):
        return source
    if isinstance(source, bytes):
        return read_image(source)
    return load_image(Path(source), str(source))
