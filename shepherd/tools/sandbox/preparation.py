"""What every box on Linux makes before a command and takes away after it."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from shepherd.tools.sandbox.box import Report
from shepherd.tools.sandbox.descriptors import awaited_process, memory_file
from shepherd.tools.sandbox.groups import control_groups
from shepherd.tools.sandbox.private import PrivateFiles, private_files
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.watch import Watch


@dataclass(slots=True)
class Preparation:
    """`groups` are to be joined; `info` takes the number of the process to wait for."""

    private: PrivateFiles
    groups: list[str]
    info: int
    resources: ExitStack
    descriptors: list[int] = field(default_factory=list[int])

    def send(self, content: bytes) -> int:
        """A descriptor from which the helper can read `content`."""
        descriptor = self.resources.enter_context(memory_file(content))
        self.descriptors.append(descriptor)
        return descriptor


@contextmanager
def preparation(profile: Profile, report: Report) -> Generator[Preparation]:
    """Private files, control groups and a watch on what mounts can't hold."""
    with ExitStack() as resources:
        private = resources.enter_context(private_files())
        resources.callback(Watch(profile).undo, report)
        groups = resources.enter_context(control_groups(profile.limits))
        info = resources.enter_context(awaited_process())
        yield Preparation(private, groups, info, resources, [info])
