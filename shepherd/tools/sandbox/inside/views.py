"""Opens layers for Shepherd itself, which stays outside of every namespace."""

import os
import sys

from shepherd.tools.sandbox.inside.namespaces import open_layer
from shepherd.tools.sandbox.inside.orders import sockets

_MAX_REQUEST = 65_536


def serve_views(channel: int) -> None:
    """Open a layer for each request, until the caller closes the channel.

    A request is the directory below and that of the layer, with NUL between them. The answer is
    the descriptor of the layer's root with a byte, unless that failed, and then the number of the
    error in a byte.
    """
    plug = sockets.socket(fileno=channel)
    while request := plug.recv(_MAX_REQUEST):
        # in a child, as a namespace of mounts that stays would keep file systems busy
        child = os.fork()
        if not child:
            os._exit(_answer(channel, *map(os.fsdecode, request.split(b"\0"))))
        _, status = os.waitpid(child, 0)  # now the caller alone has the mount
        plug.send(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))


def _answer(channel: int, lower: str, place: str) -> int:
    """Send the descriptor of a layer's root; returns the number of the error, 0 for none."""
    try:
        descriptor = open_layer(lower, place).to_bytes(4, sys.byteorder)
        rights = (sockets.SOL_SOCKET, sockets.SCM_RIGHTS, descriptor)
        sockets.socket(fileno=channel).sendmsg([b"!"], [rights])
    except OSError as error:
        return error.errno or 1
    return 0
