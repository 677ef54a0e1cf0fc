"""Commands about the model and its provider."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct
from rich.text import Text

from shepherd.backends.base import Backend
from shepherd.catalog.model_files import models_in
from shepherd.cli.commands.providers.view import ADD_OPTIONS, Console, summary
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config.provider import LOCAL, Provider
from shepherd.conversation.commands.command import Lines, Note, Row
from shepherd.errors import ConfigError, ShepherdError, UsageError
from shepherd.validation import did_you_mean, nearest

BUILT_IN = "pup"
MAX_LISTED = 100
MAX_LINE = 400


async def switch(
    context: CommandContext, name: str, opening: Callable[[], Awaitable[Backend]]
) -> bool:
    """Show the progress of `opening`, which continues the conversation with the model `name`.

    Returns whether it succeeds; otherwise the previous model stays.
    """
    conversation, status, renderer = context.conversation, context.status, context.renderer
    renderer.activity.start(f"loading {one_line(name, 80)}")
    status.state = "switching"
    try:
        backend = await opening()
    except ShepherdError as error:
        renderer.error(str(error))
        renderer.notice(f"going on with {conversation.slot.label}")
        return False
    else:
        await status.note_loaded(backend, conversation.session)
        warning = backend.take_warning()
        if warning:
            renderer.notice(warning, "warn")
        note = "; the conversation is read again" if conversation.session.messages else ""
        context.show([one_line(f"Now talking to {_answering(context, backend)}{note}.", MAX_LINE)])
        return True
    finally:
        status.state = ""
        status.model = conversation.slot.model_name  # without success, that of the previous one
        renderer.activity.stop()


def _answering(context: CommandContext, backend: Backend) -> str:
    """The model and its provider, and the chosen one if another answers."""
    conversation = context.conversation
    where = f" of the provider {conversation.slot.provider}" if conversation.slot.provider else ""
    chosen = conversation.config.model.provider.partition("/")[0]
    instead = f" in place of {chosen}" if conversation.slot.fell_back else ""
    return f"{backend.info.id}{where}{instead}"


OF_ONE = ("use", "set", "show", "test", "remove")
COMMANDS = ("add", *OF_ONE)
"""The commands of `shepherd provider`, with the same options."""
_WORDS = (*COMMANDS, "list", "next")

_SETTINGS = [
    name.replace("_", "-") for name in Provider.model_fields if name not in ("name", "headers")
]


class ModelCommands(Struct, frozen=True):
    """The commands `/model` and `/provider`."""

    context: CommandContext

    def commands(self) -> list[Command[str]]:
        """Both."""
        usage = f"[NAME|next|{'|'.join(COMMANDS)} …]"
        summary = "where models come from; with a name, go on there"
        return [
            Command("model", "[NAME]", "the model; with a name, switch to it",
                    self._model, self._names),
            Command("provider", usage, summary, self._provider, self._choices, by_words=True),
        ]  # fmt: skip

    @property
    def _current(self) -> str:
        """The provider of the model that answers."""
        return self.context.conversation.slot.provider or LOCAL

    def _names(self) -> list[str]:
        """The names that `/model` completes: the built-in model and the local files."""
        settings = self.context.conversation.config.llamacpp
        return [BUILT_IN, *local_models(settings.models_path)]

    async def _model(self, argument: str) -> Lines | None:
        """Switch to a model, or describe the current one and how to switch."""
        conversation, status = self.context.conversation, self.context.status
        if argument:
            opening = partial(conversation.slot.switch_model, argument, conversation.cwd)
            await switch(self.context, argument, opening)
            return None
        size = f", {status.context_size:,} tokens of context" if status.context_size else ""
        provider = conversation.slot.provider
        where = f" of the provider {provider}" if provider else ""
        names = self._names()
        others = f"/model NAME switches; local ones: {', '.join(names)}"
        if names == [BUILT_IN]:
            others = "only Pup is here; `shepherd model pick` lists larger ones for this machine"
        more = f"; any other name is one{where}" if provider else ""
        return [
            one_line(f"{conversation.slot.model_name}{where}{size}", MAX_LINE),
            Note(one_line(others + more, MAX_LINE)),
        ]

    def _choices(self) -> list[str]:
        """The choices that `/provider` completes."""
        try:
            stored = [provider.name for provider in self.context.conversation.providers.all()]
        except ConfigError:  # while the user types is no time to report a broken file
            stored = []
        commands = (f"{command} {name}" for command in OF_ONE for name in stored)
        settings = (f"set {name} {key}" for name in stored for key in _SETTINGS)
        return [*stored, LOCAL, "next", *COMMANDS, *commands, *settings]

    async def _provider(self, argument: str) -> Lines | None:
        """List providers, run a command of `shepherd provider`, or switch to `next` or a name."""
        try:
            words = _split(argument)
            if not words or words == ["list"]:
                return await self._list()
            if words[0] in COMMANDS:
                return await self._run_command(words)
            if len(words) > 1:  # a name stands alone, so the first word should be a command
                raise UsageError(_no_command(words[0]))
            await self._switch(self._next() if words == ["next"] else words[0])
        except OSError as error:  # a file that is not writable
            raise ConfigError(str(error)) from error
        return None

    async def _switch(self, selector: str) -> None:
        """Go on with a provider, NAME or NAME/MODEL."""
        name, _, _model = selector.partition("/")
        names = [LOCAL, *(provider.name for provider in self.context.conversation.providers.all())]
        # `lsit` is more like a command than like a provider, and is reported as such
        if name not in names and nearest(name, _WORDS) and not nearest(name, names):
            raise UsageError(_no_command(name))
        await PromptConsole(self.context).switch(selector)

    async def _run_command(self, words: list[str]) -> Lines | None:
        """Run a command of `shepherd provider`, whose options are the same here."""
        from shepherd.cli.commands.providers.options import read_command  # imports typer

        action = read_command(words, "/provider")
        if isinstance(action, str):  # the help that `--help` asks for
            return [action.strip()]
        if words[0] == "test":
            self.context.renderer.activity.start(f"asking {one_line(words[1], 80)}")
        await action(PromptConsole(self.context))
        return None

    def _next(self) -> str:
        """The provider after the current one; the local model is the last of the cycle."""
        providers = self.context.conversation.providers.all()
        names = [*(provider.name for provider in providers), LOCAL]
        # the current one may be removed, or of the command line only: then the first is next
        place = names.index(self._current) if self._current in names else -1
        return names[(place + 1) % len(names)]

    async def _list(self) -> Lines:
        """All providers and the local model; a star marks the one that answers."""
        conversation = self.context.conversation
        providers = conversation.providers.all()
        rows = await asyncio.to_thread(self._rows, providers)  # it may ask the keyring
        rows.append(self._row(LOCAL, f"llama.cpp   {conversation.config.model.name}"))
        hint = "/provider NAME or next goes on there, with the same conversation."
        if not providers:
            hint = f"Add one: /provider {ADD_OPTIONS}"
        return [*rows, Note(hint)]

    def _rows(self, providers: list[Provider]) -> list[Row]:
        """A line for each provider; below the current one, the states of what it forwards to."""
        conversation = self.context.conversation
        backend = conversation.slot.loaded_backend
        rows: list[Row] = []
        for provider in providers:
            rows.append(self._row(provider.name, summary(provider, conversation.providers)))
            if provider.name == self._current and backend is not None:
                states = (state.describe() for state in backend.status.upstreams)
                rows += [Row("", one_line(state, MAX_LINE)) for state in states]
        return rows

    def _row(self, name: str, text: str) -> Row:
        """The name, after a star if that provider answers now, and what is known of it."""
        star = "*" if name == self._current else " "
        return Row(f"{star} {name}", one_line(text, MAX_LINE))


def local_models(directory: Path) -> list[str]:
    """Names of the models in `directory`, sorted."""
    names = (str(model.path.relative_to(directory)) for model in models_in(directory))
    return sorted(islice((name for name in names if name.isprintable()), MAX_LISTED))


def _no_command(word: str) -> str:
    """The error for an unknown word after `/provider`."""
    suggestion = did_you_mean(word, _WORDS) or f"; the commands are {', '.join(_WORDS)}."
    return f"/provider has no command {one_line(word, 40)}{suggestion}"


def _split(argument: str) -> list[str]:
    """The words as a shell would split them; raises UsageError."""
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise UsageError(f"A quotation mark is missing: {error}.") from error


_NEEDS_NO_CONNECTION = ("priority", "ask")
"""Settings that only matter for other models, so the conversation is not reconnected."""


class PromptConsole(Console):
    """The console of one command in the prompt; the conversation follows changes."""

    command = "/provider"

    def __init__(self, context: CommandContext) -> None:
        super().__init__(context.conversation.providers)
        self._context = context
        self._conversation = context.conversation
        self._has_output = False
        """Whether it has shown a line."""

    def show(self, text: str) -> None:
        """Show a line, the first one after a blank line."""
        blank_line = () if self._has_output else (BLANK_LINE,)
        self._has_output = True
        text = self._context.renderer.reword(text)
        self._context.surface.show(*blank_line, Piece(Text(sanitize(text))))

    def tell(self, text: str) -> None:
        self.show(text)

    async def read(self, question: str) -> str:
        return await self._context.surface.ask_secret(question)

    async def switch(self, selector: str) -> bool:
        """Continue the conversation with that provider; returns whether it could be opened."""
        conversation = self._conversation
        return await switch(
            self._context, selector, lambda: conversation.slot.switch_provider(selector)
        )

    async def before_removing(self, name: str) -> None:
        """Continue with the provider that answers now, else locally."""
        if name == self._conversation.slot.provider:  # it answers now
            await self.switch(LOCAL)
        elif name == self._chosen:  # another one answers in its place, and stays
            await self.switch(self._conversation.slot.label)

    async def after_change(self, name: str, key: str = "") -> None:
        """Reconnect if the changed provider answers; offer the others to the model."""
        conversation = self._conversation
        await conversation.provider_changed(name)
        if not key:  # it was added or removed, which is no reason to reconnect
            return
        if name in (conversation.slot.provider, self._chosen) and key not in _NEEDS_NO_CONNECTION:
            # the chosen selector may name a model, NAME/MODEL, which a new model replaces
            selector = name if key == "model" else conversation.config.model.provider
            await self.switch(selector)

    @property
    def _chosen(self) -> str:
        """The chosen provider, even if another one answers in its place."""
        return self._conversation.config.model.provider.partition("/")[0]
