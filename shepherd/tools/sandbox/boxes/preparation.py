"""The resources that every box on Linux creates before a command and removes after it."""

import threading
import weakref
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Report
from shepherd.tools.sandbox.boxes.cleanup import Watch, report_leftovers
from shepherd.tools.sandbox.helper.helper import Helper, HelperKind, OrderedProgram
from shepherd.tools.sandbox.helper.payload import memory_file
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.private import PrivateFiles, private_files
from shepherd.tools.sandbox.view.toolchains import real


class Spares:
    """The helpers of one box; after the first command, one is always ready."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: list[Helper] = []
        self._making: threading.Thread | None = None
        weakref.finalize(self, _close, self._ready)  # also at the end of the session

    @contextmanager
    def take(self, kind: HelperKind) -> Generator[Helper]:
        """A helper of this kind; no process of it is alive afterwards.

        Raises OSError or ToolError if it can't be started.
        """
        with closing(self._spare(kind) or Helper(kind)) as helper:
            yield helper

    def refill(self, kind: HelperKind) -> None:
        """Start a helper in a thread if none is ready."""
        with self._lock:
            if not self._ready and self._making is None:
                self._making = threading.Thread(target=self._make, args=(kind,), name="helper")
                self._making.start()

    def _make(self, kind: HelperKind) -> None:
        with suppress(OSError, ToolError):  # the next command reports it
            helper = Helper(kind)
            with self._lock:
                self._ready.append(helper)

    def _spare(self, kind: HelperKind) -> Helper | None:
        with self._lock:
            making, self._making = self._making, None
        if making is not None:
            making.join()
        with self._lock:
            helper = self._ready.pop() if self._ready else None
        if helper is None or (helper.kind == kind and helper.is_alive()):
            return helper
        helper.close()
        return None


def _close(helpers: list[Helper]) -> None:
    while helpers:
        helpers.pop().close()


@dataclass(slots=True)
class Preparation:
    """The helper that becomes the command, and its resources."""

    private: PrivateFiles
    helper: Helper
    resources: ExitStack
    descriptors: dict[int, int] = field(default_factory=dict[int, int])

    def send(self, content: bytes) -> int:
        """A descriptor from which the helper can read `content`."""
        descriptor = self.resources.enter_context(memory_file(content))
        self.descriptors[descriptor] = descriptor
        return descriptor

    def order(self, program: Program, orders: Mapping[str, object]) -> OrderedProgram:
        """A startable command with the descriptors of `program`."""
        passed = {descriptor: descriptor for descriptor in program.pass_fds}
        if program.stdin is not None:
            passed[program.stdin.fileno()] = 0
        return OrderedProgram(self.helper, orders, {**passed, **self.descriptors})


@contextmanager
def preparation(
    profile: Profile, report: Report, helpers: Spares, kind: HelperKind
) -> Generator[Preparation]:
    """Private files, a helper in control groups, and a watch on paths that mounts can't protect."""
    with ExitStack() as resources:
        resources.callback(helpers.refill, kind)
        private = resources.enter_context(private_files())
        resources.callback(report_leftovers, private, real(profile.home), report)
        resources.callback(Watch(profile).undo, report)
        helper = resources.enter_context(helpers.take(kind))
        yield Preparation(private, helper, resources)
