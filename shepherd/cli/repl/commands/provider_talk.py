"""Commands about providers that are typed in the prompt."""

import sys

from rich.text import Text

from shepherd.cli.repl.commands.base import CommandContext
from shepherd.cli.repl.commands.model import switch
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.provider_book import ProviderBook
from shepherd.config.providers import LOCAL

_NEEDS_NO_CONNECTION = ("priority", "ask")


class PromptConsole:
    """A `Console` of one command in the prompt; the conversation follows what is changed."""

    command = "/provider"

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._conversation = context.conversation
        self._has_said = False

    @property
    def book(self) -> ProviderBook:
        return self._conversation.providers

    @property
    def can_ask(self) -> bool:
        return sys.stdin.isatty()

    def show(self, text: str) -> None:
        lead = () if self._has_said else (BLANK_LINE,)
        self._has_said = True
        said = text.replace("`shepherd provider ", "`/provider ")
        self._context.surface.show(*lead, Piece(Text(sanitize(said))))

    def tell(self, text: str) -> None:
        self.show(text)

    async def read(self, question: str) -> str:
        return await self._context.surface.ask_secret(question)

    async def switch(self, selector: str) -> bool:
        conversation = self._conversation
        return await switch(
            self._context, selector, lambda: conversation.slot.switch_provider(selector)
        )

    async def before_removing(self, name: str) -> None:
        """Go on with who answers in place of it, else locally."""
        if name == self._conversation.slot.provider:
            await self.switch(LOCAL)
        elif name == self._chosen:
            await self.switch(self._conversation.slot.label)

    async def after_change(self, name: str, key: str = "") -> None:
        """Connect anew to a changed provider that answers; offer the others to the model."""
        conversation = self._conversation
        await conversation.provider_changed(name)
        if not key:
            return
        self.show(f"{name}: {key.replace('_', '-')} is changed.")
        if name in (conversation.slot.provider, self._chosen) and key not in _NEEDS_NO_CONNECTION:
            selector = name if key == "model" else conversation.config.model.provider
            await self.switch(selector)

    @property
    def _chosen(self) -> str:
        """The provider that was chosen, though another may answer in its place."""
        return self._conversation.config.model.provider.partition("/")[0]
