"""The last steps of a command in bubblewrap: mounts below the working directory, limits, a filter.

bubblewrap mounts by path, and follows links. Below a directory that another boxed command can
write, links may appear at any time, so those mounts are made here.
"""

import os

from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.inside.namespaces import Mounts, add_mounts, leave_owner
from shepherd.tools.sandbox.inside.orders import SETUP_FAILED, become, set_limits, stop


class Steps:
    """What is still to do; `user` and `group` are those of the command."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    mounts: Mounts
    cwd: str
    user: int
    group: int
    filter: bytes
    limits: dict[str, int]
    command: list[str]


def finish(**values: object) -> None:
    """Become the command; begins in bubblewrap, as the root of its user namespace."""
    steps = Steps(**values)
    try:
        # in bubblewrap's own namespace, because the command can look through its first process
        add_mounts(steps.mounts)
        os.chdir(steps.cwd)
        leave_owner(steps.user, steps.group)
        native.limit_capabilities()
        native.drop_capabilities()
        native.set_filter(steps.filter)
    except OSError as error:
        step = error.filename or "a step"
        stop(f"the sandbox can't be set up: {step}: {error.strerror}", SETUP_FAILED)
    set_limits(steps.limits)
    become(steps.command)
