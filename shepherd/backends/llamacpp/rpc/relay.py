"""A relay between llama.cpp and a worker, which survives the worker.

llama.cpp ends the whole process (`GGML_ABORT`) when a worker closes the connection, and waits for
ever when a worker hangs. It therefore connects to a relay in this process. The relay passes all
bytes on. After the loss of the worker it gives substitutes for the missing answers, and the engine
discards what was computed with them.
"""

import contextlib
import logging
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from shepherd.backends.llamacpp.rpc import protocol

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0
"""Seconds for the connection to a worker that has answered a moment before."""

_CHUNK = 1 << 20
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}
"""A machine that is switched off is noticed after 20 seconds, also without traffic."""

# POLLRDHUP, the end of what the worker sends, exists only on Linux.
_HANGUP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class Relay:
    """Accepts llama.cpp's connections to one worker, one after the other.

    All methods may be called from any thread.
    """

    def __init__(
        self, info: protocol.WorkerInfo, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`timeout`: seconds after which a worker that owes an answer is lost."""
        self.clock = clock
        self.info = info
        self.timeout = timeout
        self.connected = False
        self.reusable = True
        """False if llama.cpp remembers a substitute for this relay's address."""
        self.lost = ""
        """Why the worker is lost, as a sentence; "" if it is not."""
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        name = f"RPC {info.address}"
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def lose(self, reason: str) -> None:
        """Note that the worker can't be used any more; the first reason counts."""
        with self._lock:
            if self.lost:
                return
            self.lost = f"The RPC worker at {self.info.address} was lost: {reason}."
            listeners = [*self._listeners]
        logger.info("%s", self.lost)
        for listener in listeners:  # without the lock, which a listener may need
            listener()

    def can_serve(self, info: protocol.WorkerInfo) -> bool:
        """Whether llama.cpp's memory of this relay is still right for the worker."""
        has_same_devices = len(info.devices) == len(self.info.devices)
        return has_same_devices and self.reusable and not self.connected

    def restore(self, info: protocol.WorkerInfo) -> None:
        """Forget the loss, after the worker has answered again; only without a connection."""
        with self._lock:
            self.info, self.lost = info, ""

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the worker is lost, from another thread."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """End what `add_listener` began."""
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def _accept(self) -> None:
        """A daemon thread of the relay: it serves as long as the process lives."""
        while True:
            client, _ = self._listener.accept()
            try:
                with client:
                    self._serve(client)
            except OSError as error:  # llama.cpp has closed its end
                logger.debug("A connection to the relay ended: %s", error)
            finally:
                self.connected = False

    def _serve(self, client: socket.socket) -> None:
        """Relay a connection of llama.cpp until it ends; others are refused."""
        ends = client.getpeername(), client.getsockname()
        # every user of the machine can connect to a port, but this process holds the other end
        if not any(_ends(int(own.name)) == ends for own in Path("/dev/fd").iterdir()):
            logger.warning("Another program's connection to %s was refused.", self.endpoint)
            return
        self.connected = True
        _Connection(self, client).serve()


class _Connection:
    """One connection of llama.cpp and its own one to the worker."""

    def __init__(self, relay: Relay, client: socket.socket) -> None:
        self._relay = relay
        self._client = client
        self._worker: socket.socket | None = None
        self._unanswered: SimpleQueue[protocol.Request | None] = SimpleQueue()
        self._readable = select.poll()
        self._last_progress = relay.clock()
        """When bytes went to or came from the worker: it owes an answer since then."""

    def serve(self) -> None:
        """Relay until llama.cpp closes its connection."""
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol.receive_exactly(self._client, len(protocol.HELLO_REQUEST))
        self._worker = self._connect()
        # Also without a worker: llama.cpp would end the process if it got no answer.
        self._client.sendall(protocol.hello_answer())
        answers = threading.Thread(target=self._answer_all, name="RPC answers", daemon=True)
        answers.start()
        try:
            self._pass_requests()
        finally:
            self._unanswered.put(None)  # ends the thread for answers
            self._shut_down()
            answers.join()
            if self._worker is not None:
                self._worker.close()

    def _connect(self) -> socket.socket | None:
        """Connect to the worker; None if it is lost."""
        if self._relay.lost:
            return None
        try:
            worker = protocol.connect(self._relay.info.address, CONNECT_TIMEOUT)
        except (OSError, protocol.WorkerError) as error:
            self._relay.lose(_reason(error))
            return None
        worker.settimeout(self._relay.timeout)
        self._readable.register(worker, select.POLLIN)
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                worker.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return worker

    def _shut_down(self) -> None:
        """End the connection to the worker, also for a thread that waits for it."""
        if self._worker is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self._worker.shutdown(socket.SHUT_RDWR)

    def _lose(self, reason: str) -> None:
        """Note the loss, and wake a thread that waits for the worker."""
        self._relay.lose(reason)
        self._shut_down()

    def _pass_requests(self) -> None:
        """Send llama.cpp's bytes on, and note which answers they need."""
        reader, events = protocol.RequestReader(), select.poll()
        events.register(self._client, select.POLLIN)
        # A hang-up would be reported again and again, so it is watched for until the first one.
        watched = self._worker is not None and not self._relay.lost
        if self._worker is not None:
            events.register(self._worker, _HANGUP)
        while True:
            ready = {descriptor for descriptor, _ in events.poll()}
            if watched and self._worker is not None and self._worker.fileno() in ready:
                self._lose("it closed the connection")
                events.unregister(self._worker)
                watched = False
            if self._client.fileno() in ready:
                data = self._client.recv(_CHUNK)
                if not data:
                    return
                self._last_progress = self._relay.clock()  # before an answer is waited for
                for request in reader.feed(data):
                    if request.answer_size is not None:
                        self._unanswered.put(request)
                self._send(data)

    def _send(self, data: bytes) -> None:
        """Send llama.cpp's bytes to the worker, unless it is lost."""
        if self._worker is None or self._relay.lost:
            return
        try:
            self._worker.sendall(data)
        except TimeoutError:
            self._lose(self._silence)
        except OSError as error:
            self._lose(_reason(error))
        self._last_progress = self._relay.clock()

    def _answer_all(self) -> None:
        """Give llama.cpp an answer to each request, in order."""
        try:
            while (request := self._unanswered.get()) is not None:
                self._answer(request, request.answer_size or 0)
        except OSError as error:  # llama.cpp has closed its end
            logger.debug("An answer was not delivered: %s", error)

    def _answer(self, request: protocol.Request, size: int) -> None:
        """Pass an answer on, or a substitute once the worker is lost."""
        head = protocol.SIZE.pack(size)
        is_short = size <= _CHUNK  # it is read whole, and so never replaced in its middle
        answer = self._receive(len(head) + size if is_short else len(head))
        if answer is not None and answer[: len(head)] != head:
            self._lose("it sent an answer of the wrong size")
            answer = None
        if answer is None:
            self._client.sendall(head + self._substitute(request))
            return
        self._client.sendall(answer)
        if is_short:
            return
        for start in range(0, size, _CHUNK):
            count = min(_CHUNK, size - start)
            # Zeros after a loss.
            self._client.sendall(self._receive(count) or bytes(count))

    def _substitute(self, request: protocol.Request) -> bytes:
        """An answer instead of the worker's; llama.cpp keeps some answers for the next models."""
        if request.command == protocol.Command.GET_ALLOC_SIZE:
            self._relay.reusable = False
        return protocol.substitute(request, self._relay.info.devices)

    def _receive(self, count: int) -> bytes | None:
        """Exactly so many bytes of the worker; None if it is lost."""
        data = b""
        while self._worker is not None and not self._relay.lost:
            if len(data) == count:
                return data
            seconds_left = self._last_progress + self._relay.timeout - self._relay.clock()
            if seconds_left <= 0:
                self._lose(self._silence)
                break
            if not self._readable.poll(seconds_left * 1000):
                continue  # a request that was sent meanwhile may have given it more time
            try:
                part = self._worker.recv(count - len(data))
            except OSError as error:
                self._lose(_reason(error))
                break
            if not part:
                self._lose("it closed the connection")  # which ends the loop
            self._last_progress = self._relay.clock()
            data += part
        return None

    @property
    def _silence(self) -> str:
        """The reason of a loss, for a worker that hangs."""
        return f"it did not answer for {self._relay.timeout:g} seconds (llamacpp.rpc_timeout)"


def _reason(error: Exception) -> str:
    """The reason of an error, as the end of a sentence."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")


def _ends(descriptor: int) -> tuple[object, object] | None:
    """The addresses of a connected socket, its own one first; None for another descriptor."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        end = socket.socket(fileno=descriptor)
    except OSError:  # it was closed meanwhile
        return None
    try:
        return end.getsockname(), end.getpeername()
    except OSError:  # it is not connected
        return None
    finally:
        end.detach()
