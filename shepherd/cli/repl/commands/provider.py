"""Commands about where models answer."""

import asyncio
import shlex

from rich.text import Text

from shepherd.cli.commands.providers.view import ADD_OPTIONS, summary
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.provider_talk import PromptConsole
from shepherd.cli.repl.commands.view import two_columns
from shepherd.cli.terminal.errors import UsageError
from shepherd.cli.terminal.sanitize import sanitize, one_line
from shepherd.config.providers import LOCAL, Provider
from shepherd.errors import ConfigError

OF_ONE = ("use", "set", "show", "test", "remove")
COMMANDS = ("add", *OF_ONE)
"""Those of `shepherd provider`, whose options they have."""

_SETTINGS = [
    name.replace("_", "-") for name in Provider.model_fields if name not in ("name", "headers")
]


def provider_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    provider = _Provider(context)
    return [
        Command(
            "provider",
            f"[NAME|next|{'|'.join(COMMANDS)} …]",
            "where models come from; with a name, go on there",
            provider.provider,
            provider.choices,
            by_words=True,
        )
    ]


class _Provider:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    @property
    def _current(self) -> str:
        return self._context.conversation.slot.provider

    def choices(self) -> list[str]:
        """What `/provider` completes."""
        try:
            stored = [provider.name for provider in self._context.conversation.providers.all()]
        except ConfigError:
            stored = []
        commands = (f"{command} {name}" for command in OF_ONE for name in stored)
        settings = (f"set {name} {key}" for name in stored for key in _SETTINGS)
        return [*stored, LOCAL, "next", *COMMANDS, *commands, *settings]

    async def provider(self, argument: str) -> None:
        try:
            words = _words(argument)
            if not words or words == ["list"]:
                await self._list()
            elif words[0] in COMMANDS:
                await self._do(words)
            elif len(words) > 1:
                self._context.renderer.error("/provider NAME, /provider next, or /provider alone.")
            else:
                name = self._next() if words == ["next"] else words[0]
                await PromptConsole(self._context).switch(name)
        except (ConfigError, OSError) as error:  # a file that can't be written
            self._context.renderer.error(str(error))

    async def _do(self, words: list[str]) -> None:
        from shepherd.cli.commands.providers.options import read_command  # loads typer

        action = read_command(words, "/provider")
        if isinstance(action, str):
            self._context.say(Text(sanitize(action).strip()))
            return
        if words[0] == "test":
            self._context.renderer.activity.start(f"asking {one_line(words[1], 80)}")
        await action(PromptConsole(self._context))

    def _next(self) -> str:
        """The provider behind the current one; the local model is the last of the round."""
        providers = self._context.conversation.providers.all()
        names = [*(provider.name for provider in providers), LOCAL]
        current = self._current or LOCAL
        place = names.index(current) if current in names else -1
        return names[(place + 1) % len(names)]

    async def _list(self) -> None:
        conversation = self._context.conversation
        providers = conversation.providers.all()
        rows = await asyncio.to_thread(self._rows, providers)
        rows.append((self._marked(LOCAL), f"llama.cpp   {conversation.config.model.name}"))
        hint = (
            "/provider NAME or next goes on there, with the same conversation."
            if providers
            else f"Add one: /provider {ADD_OPTIONS}"
        )
        self._context.say(
            two_columns((name, one_line(text, 400)) for name, text in rows),
            Text(hint, style="quiet"),
        )

    def _rows(self, providers: list[Provider]) -> list[tuple[str, str]]:
        book = self._context.conversation.providers
        return [(self._marked(p.name), summary(p, book)) for p in providers]

    def _marked(self, name: str) -> str:
        return f"{'*' if name == (self._current or LOCAL) else ' '} {name}"


def _words(argument: str) -> list[str]:
    """The words as a shell would read them; raises UsageError."""
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise UsageError(f"A quotation mark is missing: {error}.") from error
