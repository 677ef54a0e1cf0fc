"""Runs commands in bubblewrap."""

import os

from shepherd.errors import ToolError
from shepherd.own_programs import own_program
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import HelperBox, Preparation
from shepherd.tools.sandbox.helpers import HelperKind, helper_argv, payload
from shepherd.tools.sandbox.inside.enclose import finish_nested
from shepherd.tools.sandbox.inside.orders import launch
from shepherd.tools.sandbox.profile import Profile

# what the command sees is mounted by `finish_nested`, which then leaves the root of this namespace
_NAMESPACES = """
--unshare-all --die-with-parent --dev-bind / / --chdir / --uid 0 --gid 0
--cap-drop ALL --cap-add CAP_SYS_ADMIN --cap-add CAP_SETFCAP
"""


class Bubblewrap(HelperBox):
    """Namespaces made by `bwrap`: the command sees its own file system, processes and network."""

    name = "bubblewrap"
    takes_layers = True

    def _kind(self, profile: Profile) -> HelperKind:
        _executable()  # without it, no helper is started
        return HelperKind(launch, profile.limits)

    def _orders(
        self, program: Program, profile: Profile, prepared: Preparation
    ) -> dict[str, object]:
        """The command line of bubblewrap, whose last steps in the box are `finish_nested`."""
        orders = {
            **prepared.surroundings(profile),
            **prepared.separate_orders(program, profile),
            "user": os.geteuid(),
            "group": os.getegid(),
        }
        starter = prepared.send(payload(orders))
        words = [*_NAMESPACES.split(), "--info-fd", str(prepared.helper.info)]
        if profile.layer is not None:  # the kernel keeps a directory without rights beside a layer
            words += ["--cap-add", "CAP_DAC_OVERRIDE"]
        if profile.network:
            words.append("--share-net")
        return {"command": [_executable(), *words, "--", *helper_argv(finish_nested, starter)]}


def _executable() -> str:
    executable = own_program("bwrap")
    if executable is None:
        raise ToolError("bubblewrap (bwrap) is not installed")
    return executable
