"""Views of layers: with one, file tools see and change what the commands in the layer do."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tasks import in_thread_to_end
from shepherd.tools.layer.layer import Layer
from shepherd.tools.paths import Origin, View, reason
from shepherd.tools.program import Program
from shepherd.tools.sandbox.helpers import helper_argv, helper_environment, memory_file, payload
from shepherd.tools.sandbox.inside.namespaces import send_root
from shepherd.tools.sandbox.view.toolchains import real

_TIMEOUT = 5.0


@asynccontextmanager
async def view_of(layer: Layer) -> AsyncGenerator[View]:
    """A view of the layer, for which no command may have it mounted; raises ToolError."""
    async with layer.mounted:
        resources = ExitStack()
        try:
            yield await in_thread_to_end(lambda: _open(layer, resources))
        finally:
            await in_thread_to_end(resources.close)


def _open(layer: Layer, resources: ExitStack) -> View:
    """A new view, with what ends it in the resources."""
    try:
        descriptor = _mounted_root({"lower": str(real(layer.root)), "place": str(real(layer.base))})
    except OSError as error:
        raise ToolError(f"the layer can't be opened: {reason(error)}") from error
    resources.callback(os.close, descriptor)
    view = View(Origin(layer.root, f"/proc/self/fd/{descriptor}/."))
    resources.callback(view.close)
    return view


def _mounted_root(words: dict[str, object]) -> int:
    """The descriptor of a layer's root, mounted where no path leads to. Raises OSError.

    A process mounts it in a namespace of its own, hands over the mount, and ends.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, memory_file(payload({"channel": theirs.fileno(), **words})) as code:
            argv, passed = helper_argv(send_root, code), (code, theirs.fileno())
            process = Program(argv, Path("/"), helper_environment(), pass_fds=passed).start()
        with process:
            try:
                ours.settimeout(_TIMEOUT)
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
                number = 0 if descriptors else process.wait(_TIMEOUT)
            finally:
                process.kill()
    if not descriptors:
        raise OSError(number, os.strerror(number))
    return descriptors[0]
