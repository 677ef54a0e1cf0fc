"""Runs commands in macOS's sandbox-exec, with a profile in its language (SBPL).

Written from the documentation; it has not been run on a Mac.
"""

import re
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.boxes.box import Report, Watch, ignore_refusals
from shepherd.tools.sandbox.profile import Limits, Profile, resource_limits
from shepherd.tools.sandbox.view.private import boxed_environment, private_files
from shepherd.tools.sandbox.view.toolchains import SYSTEM_SECRETS, is_below, real, tool_paths

_EXECUTABLE = "/usr/bin/sandbox-exec"
_SYSTEM = (
    *("/bin", "/sbin", "/usr", "/opt", "/System", "/Library", "/Applications", "/nix", "/etc"),
    *("/private/etc", "/private/var/db/dyld", "/private/var/db/timezone", "/private/var/select"),
    *("/dev", "/var", "/tmp"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/dtracehelper")
_BASE = """(version 1)
(deny default)
(allow process-fork)
(allow process-exec)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/"))
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-ioctl (literal "/dev/tty"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow mach-lookup (global-name "com.apple.system.logger"))
(allow mach-lookup (global-name "com.apple.trustd.agent"))"""
_NETWORK = """(allow network-outbound (remote ip "*:*"))
(allow network-bind (local ip "*:*"))
(allow network-inbound (local ip "*:*"))
(allow network-outbound (literal "/private/var/run/mDNSResponder"))
(allow mach-lookup (global-name "com.apple.dnssd.service"))"""
_ULIMITS = {"CPU": "t", "NOFILE": "n", "NPROC": "u", "CORE": "c"}


class SandboxExec:
    """A profile that denies everything that it does not name."""

    name = "sandbox-exec"
    takes_layers = False

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Program]:
        """The program behind `sandbox-exec` and a shell that sets its limits."""
        if shutil.which(_EXECUTABLE) is None:
            raise ToolError("sandbox-exec is missing")
        watch = Watch(profile)
        with private_files() as private:
            environment = boxed_environment(program.environment, str(private.temp))
            tools = tool_paths(profile, environment)
            text = sandbox_profile(profile, private.temp, tools)
            limits = ["/bin/sh", "-c", f'{_ulimits(profile.limits)}exec "$@"', "sh"]
            argv = [_EXECUTABLE, "-p", text, *limits, *program.argv]
            try:
                yield replace(program, argv=argv, environment=environment)
            finally:
                watch.undo(report)


def sandbox_profile(profile: Profile, temp: Path, tools: Iterable[Path]) -> str:
    """The profile's text; the last rule that matches a file decides, so denials come last."""
    root = real(profile.root)
    working = [root, *map(real, profile.writable)]
    writable = [temp] if profile.read_only else [*working, temp]
    readable = [*map(Path, _SYSTEM), *tools, *working, *map(real, profile.readable)]
    # a protected link itself must stay, and so must its target
    kept = [real(path.parent) / path.name for path in profile.fixed]
    kept += [real(path) for path in profile.fixed]
    hidden = [real(path) for path in (*profile.hidden, *map(Path, SYSTEM_SECRETS))]
    parts = [
        _BASE,
        _rules("allow", "file-read*", "subpath", [*readable, *writable]),
        _rules("allow", "file-write*", "literal", map(Path, _DEVICES)),
        _rules("allow", "file-write*", "subpath", writable),
        _rules("deny", "file-write*", "subpath", kept),
        _rules("deny", "file-write-unlink", "literal", _between(writable, [*kept, *hidden])),
        _rules("deny", "file-read* file-write*", "subpath", hidden),
    ]
    parts += [_NETWORK] if profile.network else []
    return "\n".join(part for part in parts if part) + "\n"


def _rules(action: str, operations: str, form: str, paths: Iterable[Path]) -> str:
    """`(deny file-write* (subpath "/a") (subpath "/b"))`; "" without paths."""
    names = dict.fromkeys(f"({form} {quoted(str(path))})" for path in paths)
    return f"({action} {operations} {' '.join(names)})" if names else ""


def quoted(text: str) -> str:
    """A string of the profile's language. Raises ToolError for text that it can't hold."""
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", text):
        raise ToolError(f"the sandbox can't hold the path {text!r}")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _between(tops: Iterable[Path], paths: Iterable[Path]) -> Iterator[Path]:
    """Directories above `paths`; renaming one would give a path another name."""
    places = list(tops)
    for path in paths:
        for parent in path.parents:
            if any(parent != top and is_below(parent, top) for top in places):
                yield parent


def _ulimits(limits: Limits) -> str:
    """The commands of a shell that set the limits; one that can't be set is left out."""
    bounds = resource_limits(limits)
    known = [name for name in bounds if name in _ULIMITS]
    return "".join(f"ulimit -{_ULIMITS[name]} {bounds[name]} 2>/dev/null; " for name in known)
