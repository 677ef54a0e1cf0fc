"""The providers that do not answer, as tools of the model that does."""

from typing import TYPE_CHECKING

from shepherd.agents import AskedBackends, Asking, AskProvider, tool_names
from shepherd.backends.base import Backend, ModelInfo
from shepherd.conversation.model_choice import with_provider
from shepherd.conversation.toolbox import offered_tools
from shepherd.errors import ConfigError
from shepherd.messages import ToolSpec
from shepherd.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from shepherd.conversation.conversation import Assembly


class OtherProviders:
    """Keeps the tools `ask_NAME` of a conversation, and the backends behind them."""

    def __init__(self, assembly: "Assembly") -> None:
        self._assembly = assembly
        self._backends = AskedBackends(self._open)
        self._asking = Asking(
            backends=self._backends,
            session=lambda: assembly.session,
            limits=lambda: assembly.limits,
            offer=self._offer,
            address=self._address,
        )

    def update(self, current: str) -> None:
        """Put the tools for all but the provider `current` into the registry."""
        assembly, registry = self._assembly, self._assembly.registry
        for tool in registry:
            if tool.asks_models:
                registry.remove(tool.name)
        config = assembly.config
        if not (config.model.tools and config.tools.ask_providers):
            return
        try:
            providers = assembly.providers.all()
        except ConfigError as error:
            assembly.notices.tell(str(error))
            return
        names = tool_names(provider.name for provider in providers)
        for provider in providers:
            name = names[provider.name]
            may_be_asked = provider.ask and provider.name != current
            if may_be_asked and name not in config.tools.disabled:
                registry.add(AskProvider(name, provider, self._asking))

    async def close(self, provider: str) -> None:
        """Close the provider's backend: it is about to answer by itself."""
        await self._backends.close(provider)

    async def aclose(self) -> None:
        """Close all backends."""
        await self._backends.aclose()

    async def _open(self, provider: str) -> Backend:
        config = with_provider(self._assembly.config, provider)
        model = config.model.model_copy(update={"fallback": False})
        return await self._assembly.open_backend(config.model_copy(update={"model": model}))

    def _offer(self, registry: ToolRegistry, model: ModelInfo) -> list[ToolSpec]:
        return offered_tools(registry, self._assembly.config, model)

    def _address(self, name: str) -> str:
        provider = self._assembly.providers.pick(name)
        if provider.is_local:
            return ""
        from shepherd.backends.api.http.endpoint import Endpoint
        from shepherd.backends.connect import address_of

        address = address_of(provider)
        return "" if Endpoint(address).is_near else address
