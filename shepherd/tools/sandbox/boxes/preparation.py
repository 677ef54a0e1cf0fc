"""What every box on Linux makes before a command and takes away after it."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Report
from shepherd.tools.sandbox.boxes.leftovers import tell_leftovers
from shepherd.tools.sandbox.boxes.watch import Watch
from shepherd.tools.sandbox.helper.descriptors import memory_file
from shepherd.tools.sandbox.helper.helper import Helper, OrderedProgram
from shepherd.tools.sandbox.helper.spares import Spares
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.view.private import PrivateFiles, private_files
from shepherd.tools.sandbox.view.toolchains import real


@dataclass(slots=True)
class Preparation:
    """The helper that is to become the command, and what is made for it."""

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
        """What starts the command, with the descriptors of `program` as they are here."""
        passed = {descriptor: descriptor for descriptor in program.pass_fds}
        if program.stdin is not None:
            passed[program.stdin.fileno()] = 0
        return OrderedProgram(self.helper, orders, {**passed, **self.descriptors})


@contextmanager
def preparation(profile: Profile, report: Report, helpers: Spares) -> Generator[Preparation]:
    """Private files, a helper in control groups, and a watch on what mounts can't hold."""
    with ExitStack() as resources:
        resources.callback(helpers.refill, profile.limits)
        private = resources.enter_context(private_files())
        resources.callback(tell_leftovers, private, real(profile.home), report)
        resources.callback(Watch(profile).undo, report)
        helper = resources.enter_context(helpers.take(profile.limits))
        yield Preparation(private, helper, resources)
