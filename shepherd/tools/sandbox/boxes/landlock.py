"""Commands enclosed by Landlock and seccomp, and by namespaces where they can be made."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from shepherd.errors import ToolError
from shepherd.tools.program import Program, Startable
from shepherd.tools.sandbox.boxes.box import Report, ignore_refusals
from shepherd.tools.sandbox.boxes.preparation import preparation
from shepherd.tools.sandbox.helper.spares import Spares
from shepherd.tools.sandbox.inside.rules import version
from shepherd.tools.sandbox.profile import SHARED_MEMORY, Profile, resource_limits
from shepherd.tools.sandbox.seccomp.filter import FilterOptions, Network, filter_for_this_machine
from shepherd.tools.sandbox.view.grants import bare_rights, box_rights
from shepherd.tools.sandbox.view.layout import (
    check_cwd,
    check_root,
    hidden_paths,
    mounts,
    protected_paths,
    visible_mounts,
)
from shepherd.tools.sandbox.view.private import PrivateFiles, boxed_environment
from shepherd.tools.sandbox.view.toolchains import home_tools, real

_TRUNCATION, _SIGNALS = 3, 6  # versions of Landlock that see these


class _Enclosure(ABC):
    name: str

    def __init__(self) -> None:
        self._helpers = Spares("enclose")

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Startable]:
        """See `Box.enter`."""
        with preparation(profile, report, self._helpers) as prepared:
            environment = self._environment(program, profile, prepared.private)
            orders = {
                **self._orders(profile, prepared.private, environment),
                "command": list(program.argv),
                "cwd": str(real(profile.cwd)),
                "network": profile.network,
                "limits": dict(resource_limits(profile.limits)),
                "kept": program.pass_fds,
                "environment": environment,
                "info": prepared.helper.info,
            }
            yield prepared.order(program, orders)

    @abstractmethod
    def _environment(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> Mapping[str, str]: ...

    @abstractmethod
    def _orders(
        self, profile: Profile, private: PrivateFiles, environment: Mapping[str, str]
    ) -> dict[str, object]: ...


class Landlock(_Enclosure):
    """Namespaces, Landlock and a filter, set by a small program that then becomes the command."""

    name = "landlock"

    def _environment(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> Mapping[str, str]:
        return boxed_environment(program.environment, "/tmp")

    def _orders(
        self, profile: Profile, private: PrivateFiles, environment: Mapping[str, str]
    ) -> dict[str, object]:
        shown = mounts(profile, private, environment)
        network = Network.INTERNET if profile.network else Network.OWN
        return {
            "bare": False,
            "mounts": [(int(m.kind), str(m.target), str(m.source)) for m in shown],
            "new_root": str(private.new_root),
            "shared_memory": SHARED_MEMORY,
            "rights": box_rights(shown),
            "filter": filter_for_this_machine(FilterOptions(network)),
        }


class BareLandlock(_Enclosure):
    """Landlock and a filter alone, where namespaces can't be made; refuses more than the others."""

    name = "landlock-bare"

    def _environment(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> Mapping[str, str]:
        environment = boxed_environment(program.environment, str(private.temp))
        for tool in home_tools(profile):
            link = private.home / tool.relative_to(profile.home)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(tool)
        return {**environment, "HOME": str(private.home)}

    def _orders(
        self, profile: Profile, private: PrivateFiles, environment: Mapping[str, str]
    ) -> dict[str, object]:
        abi = version()
        if abi < _TRUNCATION:
            raise ToolError("Landlock alone holds only from Linux 6.2 on")
        check_root(real(profile.root))
        shown = visible_mounts(profile, private, environment)
        check_cwd(profile, shown)
        network = Network.INTERNET if profile.network else Network.NONE
        options = FilterOptions(network, bare=True, signals=abi >= _SIGNALS)
        return {
            "bare": True,
            "rights": bare_rights(shown, protected_paths(profile), hidden_paths(profile)),
            "filter": filter_for_this_machine(options),
        }
