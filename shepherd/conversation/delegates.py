"""Other models as tools of the model that answers: other providers, and sub-agents."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from shepherd import agents, errors, messages
from shepherd.backends.base import Backend, ModelInfo
from shepherd.config.provider import Provider, missing_type, vendor_of
from shepherd.config.provider_book import ProviderBook
from shepherd.conversation import model_choice, model_slot, session_start
from shepherd.conversation.toolbox import offered_tools
from shepherd.session import Session
from shepherd.tasks import in_daemon_thread
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.tool import AnyTool
from shepherd.turn import TurnLimits

MAX_DELEGATES = 5
"""The limit of `ask_NAME` tools in one prompt; the first providers get them."""


class Delegates:
    """Keeps the tools `ask_NAME` and `task` of a conversation, their backends and their sessions.

    `session` returns the conversation's session, `limits` the limits of its turns.
    """

    def __init__(
        self,
        slot: model_slot.ModelSlot,
        registry: ToolRegistry,
        session: Callable[[], Session],
        limits: Callable[[], TurnLimits],
        notices: session_start.Notices,
    ) -> None:
        self._slot = slot
        self._registry = registry
        self._notices = notices
        self._answering: set[str] = set()
        self.backends = agents.DelegateBackends(self._open)
        self._asking = agents.Asking(
            backends=self.backends,
            session=session,
            limits=limits,
            offer=self._offer,
            address=self._address,
        )
        self._tasks = agents.Tasks(
            session=session,
            limits=limits,
            backend=slot.backend,
            backends=self.backends,
            offer=self._offer,
            slots=asyncio.Semaphore(max(1, slot.config.tools.tasks)),
        )
        tools = slot.config.tools
        if slot.config.model.tools and tools.tasks and agents.TASK not in tools.disabled:
            self._offer_tasks([])

    @property
    def sessions(self) -> dict[str, Session]:
        """The session with each provider so far, by its name."""
        return self._asking.sessions

    async def check(self) -> None:
        """Find out which providers can answer, for the next `update`; at most MAX_SECONDS."""
        try:
            providers = self._tools().values()
        except errors.ConfigError:  # `update` reports it
            return
        self._answering = await answering(providers, self._slot.providers)

    def update(self, answering_provider: str) -> None:
        """Put the tools for all other providers that can answer into the registry."""
        # a frontend or a program may have removed `task`; then it does not come back
        offers_tasks = self._registry.get(agents.TASK) is not None
        for tool in self._registry:
            if tool.calls_models:
                self._registry.remove(tool.name)
        try:
            tools = self._tools()
        except errors.ConfigError as error:
            self._notices.tell(str(error))
            tools = {}
        offered = (
            agents.AskProvider(name, provider, self._asking)
            for name, provider in tools.items()
            if provider.name in self._answering and provider.name != answering_provider
        )
        delegates = [*islice(offered, MAX_DELEGATES)]
        for tool in delegates:
            self._registry.add(tool)
        if offers_tasks:
            self._offer_tasks([tool.provider for tool in delegates])

    def _offer_tasks(self, providers: Sequence[str]) -> None:
        """Put `task` into the registry; its model can be one of `providers`."""
        if self._registry.get(agents.TASK) is None:
            self._registry.add(agents.RunTask(lambda: self._tasks, self._address, providers))

    def _tools(self) -> dict[str, Provider]:
        """The providers that may be delegates, by the tool's name; raises ConfigError."""
        config = self._slot.config
        if not (config.model.tools and config.tools.ask_providers):
            return {}
        providers = self._slot.providers.all()
        names = agents.tool_names(provider.name for provider in providers)
        return {
            names[provider.name]: provider
            for provider in providers
            if provider.ask and names[provider.name] not in config.tools.disabled
        }

    async def _open(self, provider: str) -> Backend:
        """A provider's backend without a fallback: exactly this model was asked for."""
        config = model_choice.with_provider(self._slot.config, provider)
        model = config.model.model_copy(update={"fallback": False})
        return await self._slot.open_backend(config.model_copy(update={"model": model}))

    def _offer(self, tools: Iterable[AnyTool], model: ModelInfo) -> list[messages.ToolSpec]:
        """The tools that another model is offered, with the settings of now."""
        return offered_tools(tools, self._slot.config, model)

    def _address(self, name: str) -> str:
        """The address to which a call of this provider sends text; "" if it stays here."""
        from shepherd.backends.connect import far_address

        return far_address(self._slot.providers.pick(name))


CONNECT_SECONDS = 0.1
"""The longest wait for a server of this machine or network."""

MAX_SECONDS = 1.0
"""The longest wait for all checks together: a name or a key can take long to look up."""

_PORTS = {"http": 80, "https": 443}


async def answering(
    providers: Iterable[Provider],
    book: ProviderBook,
    *,
    max_seconds: float = MAX_SECONDS,
    connect_seconds: float = CONNECT_SECONDS,
) -> set[str]:
    """The names of those that can answer; all are checked at once, in threads.

    A provider that is not checked within `max_seconds` can't.
    """
    checks = {
        asyncio.wrap_future(
            in_daemon_thread(partial(can_answer, provider, book, connect_seconds))
        ): provider.name
        for provider in providers
    }
    if not checks:
        return set()
    done, _ = await asyncio.wait(checks, timeout=max_seconds)
    return {checks[check] for check in done if check.result()}


def can_answer(
    provider: Provider, book: ProviderBook, connect_seconds: float = CONNECT_SECONDS
) -> bool:
    """Whether its key, its file or its server exists; True if only a request could tell.

    Connects only to servers of this machine and network, and blocks for the connection.
    """
    if missing_type(provider):
        return False
    if provider.is_local:
        path = Path(provider.model.removeprefix("script:")).expanduser()
        return not path.is_absolute() or path.exists()  # a bare name is found when it is opened
    from shepherd.backends.api.http.client import Endpoint
    from shepherd.backends.connect import address_of

    try:
        has_key = bool(book.key(provider).value)
        address = address_of(provider)
    except errors.ConfigError:  # no key at the place that the settings name, or a broken address
        return False
    endpoint = Endpoint(address, headers=provider.headers)
    if endpoint.is_near:
        return _listens(address, connect_seconds)
    # a far server that is no vendor's may need none
    needs_key = vendor_of(provider) is not None and provider.api_key != "none"
    return has_key or endpoint.has_key or not needs_key  # the headers may hold a key, too


def _listens(address: str, seconds: float) -> bool:
    """Whether a server accepts connections at the address."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)
    try:
        with socket.create_connection((host, port), seconds):
            return True
    except (OSError, UnicodeError):
        return False
