"""The thread that owns llama.cpp.

A context of llama.cpp serves one caller at a time, and one batch for all requests is faster than
one for each. So one thread owns everything native, and `Worker._serve` is its loop: take commands
(a request, a start, a cancel), run one step of the scheduler, deliver the new text. Commands come
through a queue, because no other thread may touch the engine. Updates of all requests leave in one
call, because waking the event loop costs as much as a token of a small model.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from shepherd.backends.inprocess import answer, threads
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.rpc.workers import WorkerLostError
from shepherd.backends.llamacpp.scheduling.job import Job, Phase, Post
from shepherd.backends.tenant import TenantKind
from shepherd.errors import BackendError, ModelLoadError, ShepherdError

logger = logging.getLogger(__name__)

WARM_UP_DELAY = 0.3
"""Seconds without a request after loading, before the warm-up starts."""

START_TIMEOUT = 0.02
"""Seconds that a step waits for the start of a request whose prompt is ready."""

Command = Callable[[Engine], None]


class Worker:
    """Runs an engine on its own thread. All methods may be called from any thread.

    Updates are delivered on the event loop that was running when the worker was made, those of one
    step in one call. Every job gets a last update, however the thread ends.
    """

    def __init__(self, load: Callable[[Post, Callable[[], None]], Engine]) -> None:
        """Start the thread; `load` runs on it, and `loaded` has the result.

        `load` gets a function that posts an update, and one that ends the thread's wait for a
        command.
        """
        self.loaded: Future[Engine] = Future()
        # A caller that stops waiting must not cancel the loading.
        self.loaded.set_running_or_notify_cancel()
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._updates: list[tuple[Job, answer.Update]] = []
        """What the event loop has not got yet."""
        self._gate = threading.Lock()
        """Held while a command is queued: none may come after those that the end has run."""
        self._ended: BackendError | None = None
        """Why the thread takes no more commands."""
        self._stopping = False
        self._heart = threads.Heartbeat()
        self._context: NativeContext | None = None
        """Whose steps can be ended; None before the model is loaded."""
        self._thread = threading.Thread(target=self._run, name="llama.cpp", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the worker still accepts requests."""
        return not self._stopping and self._ended is None

    @property
    def stalled(self) -> bool:
        """Whether there is work and the thread makes no progress."""
        return self._heart.stalled

    def submit(self, job: Job) -> None:
        """Queue a job; raises BackendError if the worker has stopped."""
        self._send(lambda engine: engine.scheduler.queue.submit(job))
        self._interrupt(urgent=job.account.tenant.kind is TenantKind.INTERACTIVE)

    def start(self, job: Job, max_tokens: int) -> None:
        """Start to generate; raises BackendError if the worker has stopped."""
        self._send(lambda engine: engine.scheduler.start(job, max_tokens))

    def cancel(self, job: Job) -> None:
        """End a job at the next step; it still gets a Finished."""
        job.cancelled = True  # the scheduler reads it before each step
        self._wake()
        self._interrupt()

    def release(self, job: Job) -> None:
        """Give up a job without an update."""
        self._commands.put(lambda engine: engine.scheduler.release(job))
        if job.phase is not Phase.DONE:  # else no step works for it, which could be shortened
            self._interrupt()

    def expect(self, session: Job | str, seconds: float | None) -> None:
        """Note when the session of a job that was released, or of this name, asks again."""

        def note(engine: Engine) -> None:
            returns = session if isinstance(session, str) else session.returns
            if returns is not None:
                engine.scheduler.pool.sessions.expect(returns, seconds)

        self._commands.put(note)

    def stop(self, timeout: float | None = None) -> None:
        """End all jobs, free everything and wait for the thread; safe to call twice."""
        self._stopping = True
        self._wake()
        self._interrupt()
        if self._thread is not threading.current_thread():  # a thread can't wait for itself
            self._thread.join(timeout)

    def _send(self, command: Command) -> None:
        """Queue a command; raises BackendError if nobody will run it."""
        with self._gate:
            if self._ended is not None:
                raise BackendError(str(self._ended))
            if self._stopping:
                raise _closed()
            self._commands.put(command)

    def _wake(self) -> None:
        """End the thread's wait for a command, so that it looks at flags; from any thread."""
        self._commands.put(lambda _engine: None)

    def _interrupt(self, *, urgent: bool = False) -> None:
        """Let a long step of a prompt end, so that a command does not wait for it.

        An `urgent` command waits for no step in which others have a part, either.
        """
        if self._context is not None:
            self._context.interrupt.set()
            if urgent:
                self._context.urgent.set()

    def _run(self) -> None:
        """The whole life of the thread: load, serve, and free everything however that ends."""
        try:
            engine = self._load(lambda job, new: self._updates.append((job, new)), self._wake)
        except ShepherdError as error:
            self.loaded.set_exception(error)
            return
        except Exception as fault:
            logger.exception("Loading the model failed")
            self.loaded.set_exception(ModelLoadError(f"The model can't be loaded: {fault!r}"))
            return
        self._context = engine.context
        self.loaded.set_result(engine)
        error, orderly = _closed(), False
        try:
            self._serve(engine)
            orderly = True
        except WorkerLostError as lost:
            error = lost
        except Exception as fault:
            logger.exception("The llama.cpp thread failed")
            error = BackendError(f"The model's thread failed ({fault!r}); load the model again.")
        finally:
            self._end(engine, error, orderly=orderly)

    def _serve(self, engine: Engine) -> None:
        """One turn after another until the worker stops: commands, a step, its updates."""
        scheduler = engine.scheduler
        self._warm_up(engine)
        while not self._stopping:
            self._run_commands(engine, wait=scheduler.queue.idle)
            engine.context.interrupt.clear()
            engine.context.urgent.clear()
            if not self._commands.empty():
                continue  # that command's interrupt may have been cleared just now
            if engine.model.workers is not None:
                engine.model.workers.check()
            self._deliver_updates()  # of the commands: the next step may take long
            if not self._stopping:
                scheduler.step(self._commands.empty)
            self._heart.beat()
            # With a prompt that is ready, its caller sends `start` as soon as it hears of it.
            if scheduler.pop_ready() and not scheduler.queue.idle:
                self._deliver_updates()
                # Else a `start` that comes a moment later would have to wait for the next step.
                self._run_next(engine, START_TIMEOUT)
            self._deliver_updates()

    def _warm_up(self, engine: Engine) -> None:
        """Warm up, unless the first request comes before."""
        if self._run_next(engine, WARM_UP_DELAY):
            return
        self._heart.beat()
        try:
            for _ in engine.warm_up():
                if not self._commands.empty():
                    break  # a request must not wait for the rest
        except BackendError as error:
            logger.warning("Warming up failed: %s", error)

    def _run_commands(self, engine: Engine, *, wait: bool) -> None:
        """Run all waiting commands; `wait` sleeps until there is one."""
        if wait:
            while self._commands.empty() and engine.scheduler.pool.bring_back():
                self._heart.beat()
            self._heart.rest()  # without work, no progress is expected
            self._run_next(engine, timeout=None)
        while self._run_next(engine, 0.0):
            pass

    def _run_next(self, engine: Engine, timeout: float | None) -> bool:
        """Run the next command; False if none comes in so many seconds."""
        try:
            command = self._commands.get(timeout=timeout)
        except Empty:
            return False
        self._heart.beat()
        command(engine)
        return True

    def _deliver_updates(self) -> None:
        """Pass all updates to the event loop in one call."""
        updates, self._updates = self._updates, []
        if not updates:
            return
        try:
            self._loop.call_soon_threadsafe(_deliver, updates)
        except RuntimeError:
            # The loop is closed, and nobody reads updates any more.
            self._stopping = True

    def _end(self, engine: Engine, error: BackendError, *, orderly: bool) -> None:
        """Refuse new commands, end all jobs, save, and free the engine once it was closed.

        `orderly` says that the thread did not fail: only then is the memory worth saving.
        """
        with self._gate:
            self._ended = error
        self._run_commands(engine, wait=False)  # so that a job sent just before gets an end, too
        engine.scheduler.queue.abandon(error)
        self._deliver_updates()
        try:
            if orderly:
                engine.scheduler.pool.save_all()
        finally:
            while not self._stopping:  # others may still tokenize with the model
                self._commands.get()
            engine.close()


def _deliver(updates: list[tuple[Job, answer.Update]]) -> None:
    """Put each update into its job's mailbox; on the event loop's thread."""
    for job, update in updates:
        job.receive(update)


def _closed() -> BackendError:
    return BackendError("The model was closed.")
