"""Finds plugins by the entry points of installed packages, and loads them when needed."""

import os
import re
import sys
from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from enum import StrEnum
from functools import lru_cache, partial
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from shepherd.errors import ShepherdError
from shepherd.tasks import in_daemon_thread

T = TypeVar("T")
LOAD_SECONDS = 10.0
"""The longest wait for the import of a plugin."""


class Group(StrEnum):
    """The groups of entry points that Shepherd loads."""

    TOOLS = "shepherd.tools"
    BACKENDS = "shepherd.backends"
    ADAPTERS = "shepherd.adapters"
    COMMANDS = "shepherd.commands"
    ROUTES = "shepherd.routes"
    FORMATS = "shepherd.formats"
    MCP = "shepherd.mcp"


class PluginError(ShepherdError):
    """A plugin can't be used; the message names the plugin and the reason."""


class Plugin(Struct, frozen=True):
    """One entry point of an installed package; `value` is `module:attribute`."""

    group: Group
    name: str
    package: str
    version: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} ({self.package} {self.version}, {self.group})"

    def load(self) -> Any:
        """The object of the entry point; raises PluginError, also after LOAD_SECONDS.

        It is imported in a thread, which stays behind when it does not end.
        """
        loading = in_daemon_thread(EntryPoint(self.name, self.value, self.group).load)
        if not wait([loading], LOAD_SECONDS).done:
            raise PluginError(
                f"The plugin {self} can't be used: its import has taken {LOAD_SECONDS:g} seconds "
                "and goes on; plugins.disabled switches it off."
            )
        with self.guarding():
            return loading.result()

    @contextmanager
    def guarding(self, allowed: type[ShepherdError] = PluginError) -> Generator[None]:
        """Raises PluginError for errors of the plugin's code, except `allowed` ones."""
        try:
            yield
        except allowed:
            raise
        except (Exception, SystemExit) as error:  # a plugin may raise any exception
            reason = f"{type(error).__name__}: {error}"
            raise PluginError(f"The plugin {self} can't be used: {reason}") from error

    def is_in(self, names: Collection[str]) -> bool:
        """Whether one of the names is that of the entry point or its package."""
        return self.name in names or _normalized(self.package) in map(_normalized, names)


class Plugins(Struct, frozen=True):
    """The installed plugins, except those that the user has disabled by name.

    `settings` are the user's for plugins, by the name of an entry point or its package.
    """

    disabled: Collection[str] = ()
    settings: Mapping[str, Mapping[str, Any]] = {}

    def of(self, group: Group) -> list[Plugin]:
        """The plugins of one group."""
        plugins = (plugin for plugin in installed_plugins() if plugin.group is group)
        return [plugin for plugin in plugins if not plugin.is_in(self.disabled)]

    def load(self, plugin: Plugin) -> Any:
        """The object of the entry point; a function that has settings gets them as `settings`.

        Raises PluginError.
        """
        loaded = plugin.load()
        settings = self.settings.get(plugin.name) or self.settings.get(plugin.package)
        return partial(loaded, settings=settings) if settings else loaded

    def use(self, group: Group, work: Callable[[Any], T], warn: Callable[[str], None]) -> list[T]:
        """The result of `work` for each plugin of the group; failures are reported to `warn`."""
        results: list[T] = []
        for plugin in self.of(group):
            try:
                with plugin.guarding():
                    results.append(work(self.load(plugin)))
            except PluginError as error:
                warn(str(error))
        return results


def installed_plugins() -> list[Plugin]:
    """The plugins of all installed packages, by package, group and name.

    Packages in the working directory are ignored, because a cloned repository could contain one.
    """
    cwd = os.path.realpath(".")
    folders = [
        folder
        for folder in dict.fromkeys(sys.path)  # without repeats
        if folder.startswith(os.sep) and os.path.realpath(folder) != cwd
    ]
    return list(_plugins_in(tuple((folder, _changed_at(folder)) for folder in folders)))


def _changed_at(folder: str) -> int:
    """When an entry of a folder was added or removed, as the installation of a package does."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:  # there is no such folder
        return 0


@lru_cache(1)
def _plugins_in(folders: tuple[tuple[str, int], ...]) -> tuple[Plugin, ...]:
    """The plugins in folders, each with the time of its last change: then they are read again."""
    by_package: dict[str, list[Plugin]] = {}
    for package in distributions(path=[folder for folder, _time in folders]):
        plugins = _plugins_of(package)
        if plugins:  # of two versions of a package, the first one is imported
            by_package.setdefault(_normalized(plugins[0].package), plugins)
    plugins = (plugin for plugins in by_package.values() for plugin in plugins)
    return tuple(sorted(plugins, key=lambda p: (p.package, p.group, p.name)))


def _plugins_of(package: Distribution) -> list[Plugin]:
    """The plugins of one package; a package with broken metadata has none."""
    groups = {group.value: group for group in Group}
    try:
        points = [point for point in package.entry_points if point.group in groups]
        if not points:  # most packages: reading their metadata would take longer
            return []
        name, version = str(package.metadata["Name"]), package.version
        return [Plugin(groups[p.group], p.name, name, version, p.value) for p in points]
    except (KeyError, ValueError, TypeError, OSError, AttributeError):  # broken metadata
        return []


def _normalized(package: str) -> str:
    """`my-package` for `My_Package`, as pip compares names."""
    return re.sub(r"[-_.]+", "-", package).lower()
