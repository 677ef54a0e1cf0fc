"""Opens layers for Shepherd itself, which stays outside of every namespace."""

import os
import sys

from shepherd.tools.sandbox.inside.namespaces import open_layer
from shepherd.tools.sandbox.inside.orders import sockets


def send_root(channel: int, lower: str, place: str) -> None:
    """Send the descriptor of a layer's root; the exit code is the number of an error."""
    try:
        descriptor = open_layer(lower, place).to_bytes(4, sys.byteorder)
        rights = (sockets.SOL_SOCKET, sockets.SCM_RIGHTS, descriptor)
        sockets.socket(fileno=channel).sendmsg([b"!"], [rights])
    except OSError as error:
        os._exit(error.errno or 1)
    os._exit(0)
