"""The interactive terminal: messages and commands, one after the other."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.text import Text

from shepherd import errors, prices
from shepherd.backends.base import Backend, cannot_see
from shepherd.catalog.discovery import Discovery, discover
from shepherd.cli.render.inline import markdown_parser
from shepherd.cli.render.renderer import show_last_exchanges
from shepherd.cli.render.status import Status, Totals, short_name
from shepherd.cli.repl import turns
from shepherd.cli.repl.commands import CommandContext, fill_table
from shepherd.cli.repl.completion import Offers, no_offers
from shepherd.cli.repl.loop import Frontend, TerminalLoop
from shepherd.cli.terminal import attachments
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.config.files import make_private_directory
from shepherd.config.provider_book import ProviderBook
from shepherd.config.section import ApproveMode
from shepherd.config.settings import Config, LayerName
from shepherd.conversation.commands.present import MODE_TEXT, set_mode
from shepherd.conversation.conversation import Conversation
from shepherd.messages import Role
from shepherd.models import BUILTIN_NAME
from shepherd.session import Session
from shepherd.tools.files.read import ReadImage
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.turn import run_turn


class Repl(Frontend):
    """One conversation of this process on one terminal."""

    can_steer = True
    runs_own_beside = True

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        settings = conversation.config.terminal
        self._status = Status(
            model=conversation.slot.model_name,
            approve=conversation.policy.mode.value,
            thinking=conversation.session.thinking,
            directory=conversation.cwd.name,
            prices=prices.read_prices(settings.prices),
        )
        loop = self._loop = TerminalLoop(
            settings, conversation.paths, conversation.cwd, self._status, self
        )
        self._surface, self._renderer = loop.surface, loop.renderer
        self._approver = turns.TerminalApprover(loop.surface, loop.renderer)
        tools = conversation.tool_runner(self._approver)
        self._tools = turns.RenderingExecutor(tools, loop.renderer)
        self._changing_mode = set[asyncio.Task[None]]()
        """The tasks of `turn_mode`, kept because asyncio does not keep them."""
        context = CommandContext(
            conversation, loop.surface, loop.renderer, self._status, loop.leave
        )
        fill_table(loop.table, context)
        conversation.when_moved(self._note_model)

    async def run(self) -> int:
        """Greet, talk until the user leaves, say goodbye; returns the exit code."""
        self._greet()
        try:
            await self._loop.run(self._load(), self._suggest())
        finally:
            self._say_goodbye()
        return 0

    @property
    def waiting(self) -> Sequence[str]:
        """The messages that have not joined the turn."""
        return self._conversation.additions.waiting

    async def send(self, text: str) -> None:
        """Let a message join the running turn; raises NotSentError if a file can't be attached."""
        attached = await self._attach(text, await self._conversation.backend())
        self._conversation.additions.steer(attached.message, text)

    def take_back(self) -> str | None:
        """Withdraw the last message that has not joined."""
        return self._conversation.additions.take_back()

    def offers(self) -> Offers:
        """The prompts that the MCP servers offer now, and their resources."""
        hub = self._conversation.servers
        if hub is None or not any(entry.connection for entry in hub.entries):
            return no_offers()  # before a connection, the SDK must not delay a key
        from shepherd.mcp.prompts import completions  # the SDK is imported already

        return completions(hub)

    async def run_own(self, text: str) -> None:
        """Run a line in the user's shell, and show its output."""
        await turns.run_own_command(
            text, self._conversation.own_commands, self._surface, self._renderer
        )

    async def answer(self, text: str) -> None:
        """Answer a message, or put it back into the prompt."""
        try:
            await self._ask(text)
        except turns.NotSentError as error:
            self._renderer.end_turn()
            if str(error):  # otherwise it is reported already
                self._renderer.error(str(error))
            self._surface.restore(text)

    async def _ask(self, text: str) -> None:
        """Show `text` and answer it; raises turns.NotSentError if it did not reach the model."""
        self._renderer.user(text)
        self._status.turn = Totals()  # those of the turn that begins
        self._renderer.activity.start(f"loading {self._conversation.slot.model_name}")
        try:
            backend, prompt = await self._conversation.prepare(text)
        except errors.ShepherdError as error:
            raise turns.NotSentError(str(error)) from error
        if self._status.state:  # "not loaded" until now
            await self._status.note_loaded(backend, self._conversation.session)
        attached = await self._attach(prompt.content, backend)
        attached.images += prompt.images
        self._renderer.activity.start("waiting for the model")
        session, limits = self._conversation.session, self._conversation.limits
        first_number = session.next_number  # of what the turn adds
        try:
            await run_turn(session, attached.message, backend, self._tools, self._renderer, limits)
        except errors.ShepherdError as error:  # an event has reported it
            if not _has_prompt(session, first_number):
                raise turns.NotSentError from error
        else:
            self._status.totals.turns += 1
        self._renderer.end_turn()

    async def _attach(self, text: str, backend: Backend) -> attachments.Attached:
        """The message with the files that it mentions, which are shown to the user.

        Raises turns.NotSentError if one can't be read, or if the model can't see its images.
        """
        cwd = self._conversation.cwd
        for path, similar in attachments.missing_paths(text, cwd).items():
            hint = f"; did you mean @{similar}?" if similar else ""
            self._renderer.notice(f"no file @{path}: it is sent as text{hint}", "warn")
        if not attachments.mentioned_paths(text, cwd):
            return attachments.Attached(text)
        self._renderer.activity.start("reading files")
        # reading for the user does not depend on the tools that the model is offered
        reader, viewer = (
            self._conversation.tool_runner(self._approver, registry)
            for registry in (default_registry(), ToolRegistry([ReadImage()]))
        )
        attached = await attachments.attach_files(text, cwd, reader, viewer)
        if attached.problems:
            raise turns.NotSentError("; ".join(attached.problems))
        if attached.images and backend.info.vision is False:  # None: the server decides
            raise turns.NotSentError(str(cannot_see(backend.info.id)))
        if attached.paths:
            self._renderer.notice(f"attached: {', '.join(attached.paths)}")
        for image in attached.images:
            self._renderer.notice(f"attached {attachments.described(image)}")
        return attached

    async def _load(self) -> None:
        """Load the model beside the prompt, and test what the first turn needs."""
        self._status.state = "loading"
        await self._surface.drawn()  # before it, the imports of the model would delay the prompt
        try:
            backend = await self._conversation.backend()
        except errors.ShepherdError as error:
            self._status.state = "not loaded"
            self._renderer.error(str(error))
            self._renderer.notice("/model NAME loads another; /provider lists what there is")
        else:
            await self._status.note_loaded(backend, self._conversation.session)
            warning = backend.take_warning()
            if warning:
                self._renderer.notice(warning, "warn")
            await asyncio.to_thread(markdown_parser)  # otherwise the first answer waits for it
            await self._try_sandbox()
        self._surface.refresh()

    async def _try_sandbox(self) -> None:
        """Test the sandbox before it is needed; report at once if `auto` can't use it."""
        sandbox, policy = self._conversation.sandbox, self._conversation.policy
        await sandbox.find()
        if policy.mode is ApproveMode.AUTO:
            problem = await set_mode(self._conversation, policy.mode)  # the same, now tried
            turns.note_mode(policy, self._status)
            if problem and sandbox.is_new(problem):
                self._renderer.notice(problem, "warn")

    def turn_mode(self) -> None:
        """Go to the next mode."""
        task = asyncio.ensure_future(self._change_mode())
        self._changing_mode.add(task)
        task.add_done_callback(self._changing_mode.discard)

    async def _change_mode(self) -> None:
        """Set the next mode, and tell what it means or why the sandbox can't carry it."""
        policy = self._conversation.policy
        mode = turns.next_mode(policy.mode)
        self._status.approve = mode.value  # at once; trying the sandbox takes a moment
        problem = await set_mode(self._conversation, mode)
        if policy.mode is mode:  # it was not pressed again while the sandbox was tried
            turns.note_mode(policy, self._status)
            self._surface.hint(f"approve: {mode.value}. {problem or MODE_TEXT[mode]}")

    def _note_model(self, backend: Backend) -> None:
        """Show that the conversation goes on with another model."""
        self._status.note_model(backend)
        self._surface.refresh()

    async def _suggest(self) -> None:
        """Suggest, once, models of this machine that could replace the built-in one."""
        conversation = self._conversation
        await self._surface.drawn()  # looking for models would delay the prompt
        file = conversation.paths.suggestions_file
        try:
            lines = await suggestions(conversation.config, conversation.providers, os.environ, file)
        except errors.ShepherdError as error:
            self._renderer.error(str(error))
            return
        for line in lines:
            self._renderer.notice(line)

    def _greet(self) -> None:
        """Show the model, how to begin to a newcomer, and the end of a resumed conversation."""
        model = short_name(self._conversation.slot.model_name)
        self._loop.greet(model)
        is_newcomer = next(self._conversation.paths.sessions.glob("*.jsonl"), None) is None
        if is_newcomer:  # nothing was saved yet
            for line in welcome(model, self._conversation.policy.mode):
                self._renderer.notice(line)
        if self._conversation.session.messages:
            show_last_exchanges(self._conversation.session.messages, self._renderer)
        # what was reported while the conversation was opened, and what comes later
        self._conversation.notices.listen(lambda text: self._renderer.notice(text, "warn"))

    def _say_goodbye(self) -> None:
        """Show how to resume the conversation, if it is saved."""
        if self._conversation.transcript is not None and self._conversation.session.messages:
            text = f"Go on with: shepherd --resume {self._conversation.session.id}"
            self._surface.show(BLANK_LINE, Piece(Text(text, style="quiet"), soft_wrap=True))


def _has_prompt(session: Session, first_number: int) -> bool:
    """Whether a message of the user has this number, or a later one; it may have been removed."""
    added = zip(session.messages, session.numbers, strict=True)
    return any(
        number is not None and number >= first_number
        for message, number in added
        if message.role is Role.USER and not message.is_hint
    )


def welcome(model: str, mode: ApproveMode) -> tuple[str, str]:
    """The model and its limits, and how to begin."""
    if model == BUILTIN_NAME:
        first = "You talk to Pup, a small built-in model. `shepherd model pick` lists larger ones."
    else:
        first = f"You talk to {model}. The last line shows how full its context is."
    rule = MODE_TEXT[mode]
    if mode is ApproveMode.ASK:  # for a newcomer in other words
        rule = "You are asked before anything is changed or run."
    return first, f"@ adds a file, Esc stops. {rule}"


async def suggestions(
    config: Config, providers: ProviderBook, env: Mapping[str, str], suggestions_file: Path
) -> list[str]:
    """A line for each possible model, for users without a choice so far.

    Each is suggested once: `suggestions_file` keeps them. Raises ConfigError for a broken
    providers.toml.
    """
    # a choice is a provider, or a name of a model in the settings
    chosen = config.model.provider or config.source("model.name").layer is not LayerName.DEFAULT
    if chosen or providers.all():
        return []
    available = await discover(env, config.llamacpp.models_path)
    new = await asyncio.to_thread(_new_suggestions, available, suggestions_file)
    if not new:
        return []
    return [
        "Pup, a small model, answers until you connect another one. On this machine:",
        *(f"  {item.description}: {item.command}" for item in new),
    ]


def _new_suggestions(available: list[Discovery], suggestions_file: Path) -> list[Discovery]:
    """The suggestions that are not in the file yet, and saves them; [] if they can't be saved."""
    try:
        make_private_directory(suggestions_file.parent)
        descriptor = os.open(suggestions_file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a+", encoding="utf-8") as file:
            file.seek(0)  # reading begins at the end otherwise
            earlier = file.read().splitlines()
            new = [item for item in available if item.command not in earlier]
            file.writelines(f"{item.command}\n" for item in new)
    except (OSError, UnicodeError):
        return []
    return new
