"""Backends of plugins: the entry point named like a type opens providers of that type."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from shepherd.backends.base import Backend
from shepherd.config.provider import Provider, missing_type
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import ConfigError, ShepherdError
from shepherd.plugins import Group, PluginError, Plugins

OpenBackend: TypeAlias = Callable[[Provider, str], Awaitable[object]]
"""The type of the entry point; it gets the provider and its key, or "" without one."""


async def open_extension(provider: Provider, book: ProviderBook, config: Config) -> Backend:
    """The backend of a provider whose type comes from a plugin.

    Raises ConfigError if the plugin is missing, switched off or broken, and the plugin's own
    ShepherdError.
    """
    plugins = Plugins(config.plugins.disabled).of(Group.BACKENDS)
    plugin = next((plugin for plugin in plugins if plugin.name == provider.type), None)
    if plugin is None:
        raise ConfigError(
            missing_type(provider)
            or f"Provider {provider.name}: plugins.disabled names the plugin of its type "
            f"{provider.type}."
        )
    open_backend = cast(OpenBackend, await asyncio.to_thread(plugin.load))
    with plugin.guarding(ShepherdError):
        backend = await open_backend(provider, book.key(provider).value)
    if not isinstance(backend, Backend):
        raise PluginError(f"The plugin {plugin} can't be used: it did not return a backend")
    return backend
