"""Runs commands in bubblewrap."""

import os
from collections.abc import Callable

from shepherd.errors import ToolError
from shepherd.own_programs import own_program
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import HelperBox, separate_orders
from shepherd.tools.sandbox.inside.enclose import finish_nested
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.private import PrivateFiles

# what the command sees is mounted by `finish_nested`, which then leaves the root of this namespace
_NAMESPACES = """
--unshare-all --die-with-parent --dev-bind / / --chdir / --uid 0 --gid 0
--cap-drop ALL --cap-add CAP_SYS_ADMIN --cap-add CAP_SETFCAP
"""


class Bubblewrap(HelperBox):
    """Namespaces made by `bwrap`: the command sees its own file system, processes and network."""

    name = "bubblewrap"
    takes_layers = True

    def _orders(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> tuple[Callable[..., None], dict[str, object]]:
        """The last steps in the box."""
        orders = separate_orders(program, profile, private)
        return finish_nested, {**orders, "user": os.geteuid(), "group": os.getegid()}

    def _argv(self, helper: list[str], profile: Profile, info: int) -> list[str]:
        words = [*_NAMESPACES.split(), "--info-fd", str(info)]
        if profile.layer is not None:  # the kernel keeps a directory without rights beside a layer
            words += ["--cap-add", "CAP_DAC_OVERRIDE"]
        if profile.network:
            words.append("--share-net")
        return [_executable(), *words, "--", *helper]


def _executable() -> str:
    executable = own_program("bwrap")
    if executable is None:
        raise ToolError("bubblewrap (bwrap) is not installed")
    return executable
