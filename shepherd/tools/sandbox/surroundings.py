"""The environment variables of a command in a box."""

import os
from collections.abc import Mapping

_SOCKETS = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DISPLAY",
    "DOCKER_HOST",
    "GPG_AGENT_INFO",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "TMUX",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
)
"""Names of sockets that a box does not let through."""


def boxed_environment(environment: Mapping[str, str] | None, temp: str) -> dict[str, str]:
    """The variables, with `temp` for temporary files and without those that name sockets."""
    given = dict(os.environ if environment is None else environment)
    for name in _SOCKETS:
        given.pop(name, None)
    return {**given, "TMPDIR": temp, "TMP": temp, "TEMP": temp}
