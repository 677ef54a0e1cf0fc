"""Views of layers: with one, file tools see and change what the commands in the layer do."""

import os
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, closing

from shepherd.errors import ToolError
from shepherd.tasks import in_thread_to_end
from shepherd.tools.layer.layer import Layer
from shepherd.tools.paths import Origin, View, reason
from shepherd.tools.sandbox.helpers import Helper, HelperKind
from shepherd.tools.sandbox.inside.views import serve_views
from shepherd.tools.sandbox.profile import Limits
from shepherd.tools.sandbox.view.toolchains import real

_KIND = HelperKind(serve_views, Limits(processes=None, memory=None))


class Views:
    """Opens views, by a helper process that the first one starts, and that lives as long as this.

    It mounts the layer in a namespace of its own, and hands over the mount, which no path leads to.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of both fields below
        self._helper: Helper | None = None
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
        request = os.fsencode(f"{real(layer.root)}\0{real(layer.base)}")
        with self._lock:
            try:
                if self._helper is None or not self._helper.is_alive():
                    self._helper = self._resources.enter_context(closing(Helper(_KIND)))
                descriptor = self._helper.fetch(request)
            except OSError as error:
                self._helper = None
                self._resources.close()
                raise ToolError(f"the layer can't be opened: {reason(error)}") from error
        resources.callback(os.close, descriptor)
        view = View(Origin(layer.root, f"/proc/self/fd/{descriptor}/."))
        resources.callback(view.close)
        return view
