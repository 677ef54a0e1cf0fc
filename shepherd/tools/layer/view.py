"""Views of layers: with one, file tools see and change what the commands in the layer do."""

import errno
import os
import socket
import subprocess
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tasks import in_thread_to_end
from shepherd.tools.layer.layer import Layer
from shepherd.tools.paths import Origin, View, reason
from shepherd.tools.program import Program
from shepherd.tools.sandbox.helpers import helper_argv, helper_environment, memory_file, payload
from shepherd.tools.sandbox.inside.views import serve_views
from shepherd.tools.sandbox.view.toolchains import real

_TIMEOUT = 5.0


class _Opener:
    """A process that mounts layers in a namespace of its own, and hands over the mounts."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs, memory_file(payload({"channel": theirs.fileno()})) as code:
            argv, passed = helper_argv(serve_views, code), (code, theirs.fileno())
            program = Program(argv, Path("/"), helper_environment(), pass_fds=passed)
            try:
                self._process = program.start()
            except OSError:
                self._channel.close()
                raise

    def is_alive(self) -> bool:
        """Whether it can still be asked."""
        return self._process.poll() is None

    def open(self, root: Path, base: Path) -> int:
        """The descriptor of a layer's root. Raises OSError; then it may not be used again."""
        self._channel.settimeout(_TIMEOUT)
        self._channel.sendall(os.fsencode(f"{root}\0{base}"))
        flags = socket.MSG_CMSG_CLOEXEC
        answer, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1, flags)
        if not descriptors:
            number = answer[0] if answer else errno.EPIPE
            raise OSError(number, os.strerror(number))
        self._channel.recv(1)  # the process has closed its own descriptor
        return descriptors[0]

    def close(self) -> None:
        """Wait for the process, which ends as its channel is closed."""
        self._channel.close()
        with self._process as process:  # closes its pipes
            try:
                process.wait(_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


class Views:
    """Opens views, by a process that the first one starts, and that lives as long as this.

    No path leads to the mount of a layer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of both fields below
        self._opener: _Opener | None = None
        self._resources = ExitStack()
        weakref.finalize(self, self._resources.close)

    @asynccontextmanager
    async def of(self, layer: Layer) -> AsyncGenerator[View]:
        """A view of the layer, for which no command may have it mounted; raises ToolError."""
        async with layer.mounted:
            resources = ExitStack()
            try:
                yield await in_thread_to_end(lambda: self._open(layer, resources))
            finally:
                await in_thread_to_end(resources.close)

    def _open(self, layer: Layer, resources: ExitStack) -> View:
        """A new view, with what ends it in the resources."""
        with self._lock:
            try:
                if self._opener is None or not self._opener.is_alive():
                    self._opener = self._resources.enter_context(closing(_Opener()))
                descriptor = self._opener.open(real(layer.root), real(layer.base))
            except OSError as error:
                self._opener = None
                self._resources.close()
                raise ToolError(f"the layer can't be opened: {reason(error)}") from error
        resources.callback(os.close, descriptor)
        view = View(Origin(layer.root, f"/proc/self/fd/{descriptor}/."))
        resources.callback(view.close)
        return view
