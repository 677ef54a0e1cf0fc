"""Reads the settings of a running server again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shepherd.config.provider_book import ProviderBook
from shepherd.config.section import LIVE
from shepherd.config.server import ServerSection
from shepherd.config.settings import Config, all_fields, find_field
from shepherd.conversation.model_slot import BackendOpener
from shepherd.errors import ConfigError
from shepherd.server.access.keys import Keys
from shepherd.server.operation.lifecycle import Reloaded
from shepherd.server.pool.pool import ModelPool
from shepherd.server.settings import ServerSettings
from shepherd.server.transport.tls import ServerTls

_LIVE_SECTIONS = ("llamacpp.", "sampling.")
_UNUSED_SECTIONS = ("terminal.",)


@dataclass(slots=True)
class Reloader:
    """Applies changed settings to a server; `read` reads them, and `settings_of` translates them.

    Models stay loaded where nothing that concerns them has changed.
    """

    config: Config
    read: Callable[[], Config]
    settings_of: Callable[[Config], ServerSettings]
    settings: ServerSettings
    providers: ProviderBook
    opener: BackendOpener
    keys: Keys | None = None

    async def reload(self, pool: ModelPool, tls: ServerTls | None) -> Reloaded:
        """Read and apply the settings; raises ShepherdError, and then nothing has changed."""
        config = await asyncio.to_thread(self._read)
        new = self.settings_of(config)
        if (tls is None) != (new.tls is None):
            raise ConfigError("server.tls_cert can't be added or removed without a restart.")
        if new.tls is not None:
            await asyncio.to_thread(ServerTls, new.tls)  # raises ConfigError
        changed = _changed(self.config, config)
        reopens = any(key.startswith(_LIVE_SECTIONS) for key in changed)
        await pool.reconfigure(config, self.providers, self.opener, reopens=reopens)
        if tls is not None and new.tls is not None:
            await asyncio.to_thread(tls.replace, new.tls)
        for name, field in ServerSection.model_fields.items():
            if LIVE in field.metadata:
                setattr(self.settings, name, getattr(new, name))
        self.settings.max_tokens = new.max_tokens
        self.config = config
        return Reloaded(
            [key for key in changed if _is_live(key)],
            [key for key in changed if not _is_live(key) and not key.startswith(_UNUSED_SECTIONS)],
        )

    def _read(self) -> Config:
        """The settings of the files; also checks the providers and the keys, which are live."""
        config = self.read()
        self.providers.all()
        if self.keys is not None:
            self.keys.keys()
        return config


def _changed(old: Config, new: Config) -> list[str]:
    """The settings whose values differ."""
    return [key for key in all_fields() if _value(old, key) != _value(new, key)]


def _value(config: Config, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(config.section(section), name)


def _is_live(key: str) -> bool:
    field = find_field(key)
    return key.startswith(_LIVE_SECTIONS) or (field is not None and LIVE in field.metadata)
