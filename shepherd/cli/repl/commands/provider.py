"""Commands about where models answer."""

from rich.text import Text

from shepherd.cli.provider_view import HOW_TO_ADD, summary
from shepherd.cli.repl.clean import one_line
from shepherd.cli.repl.commands.base import Command, CommandContext
from shepherd.cli.repl.commands.switch import switch
from shepherd.cli.repl.commands.view import two_columns
from shepherd.config.providers import LOCAL
from shepherd.errors import ConfigError

IN_THE_SHELL = ("add", "set", "show", "test", "remove")


def provider_commands(context: CommandContext) -> list[Command]:
    """The commands."""
    provider = _Provider(context)
    return [
        Command(
            "provider",
            "[NAME|next]",
            "where models come from; with a name, go on there",
            provider.provider,
            provider.names,
        )
    ]


class _Provider:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    @property
    def _current(self) -> str:
        return self._context.assembly.provider

    def names(self) -> list[str]:
        """What `/provider` completes."""
        try:
            stored = [provider.name for provider in self._context.assembly.providers.all()]
        except ConfigError:
            stored = []
        return [*stored, LOCAL, "next"]

    async def provider(self, argument: str) -> None:
        words = argument.split()
        if words[:1] == ["use"] and len(words) > 1:
            words = words[1:]
        try:
            if not words or words == ["list"]:
                self._list()
            elif words[0] in IN_THE_SHELL:
                self._send_to_the_shell(words[0])
            elif len(words) > 1:
                self._context.renderer.error("/provider NAME, /provider next, or /provider alone.")
            else:
                await self._use(self._next() if words == ["next"] else words[0])
        except ConfigError as error:
            self._context.renderer.error(str(error))

    async def _use(self, selector: str) -> None:
        assembly = self._context.assembly
        await switch(self._context, selector, lambda: assembly.switch_provider(selector))

    def _next(self) -> str:
        """The provider behind the current one; the local model is the last of the round."""
        providers = self._context.assembly.providers.all()
        names = [*(provider.name for provider in providers), LOCAL]
        current = self._current or LOCAL
        place = names.index(current) if current in names else -1
        return names[(place + 1) % len(names)]

    def _list(self) -> None:
        assembly = self._context.assembly
        providers = assembly.providers.all()
        rows = [(self._marked(p.name), summary(p, assembly.providers)) for p in providers]
        rows.append((self._marked(LOCAL), f"llama.cpp   {assembly.config.model.name}"))
        hint = (
            "/provider NAME or next goes on there, with the same conversation."
            if providers
            else f"Add one in the shell: {HOW_TO_ADD}"
        )
        self._context.say(
            two_columns((name, one_line(text, 400)) for name, text in rows),
            Text(hint, style="quiet"),
        )

    def _marked(self, name: str) -> str:
        return f"{'*' if name == (self._current or LOCAL) else ' '} {name}"

    def _send_to_the_shell(self, word: str) -> None:
        text = f"That is done in the shell, where keys are safe: shepherd provider {word} --help"
        self._context.say(Text(text), Text("What is changed there counts here at once.", "quiet"))
