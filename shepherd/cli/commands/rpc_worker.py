"""`shepherd rpc-worker`: lends the devices of this machine to a Shepherd on another one."""

import contextlib
import ipaddress
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from shepherd.catalog.model_files import size_text
from shepherd.cli.commands import arguments, output
from shepherd.cli.terminal.secrets import interrupted_by
from shepherd.config.paths import Paths
from shepherd.errors import ConfigError, UsageError
from shepherd.tools.program import Program
from shepherd.tools.sandbox.profile import Limits, Profile
from shepherd.tools.sandbox.sandbox import find_box, problems

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.rpc.serve import Service

INTERRUPTED = 130
"""The exit code after Ctrl+C."""
_START_SECONDS = 60.0
_POLL_SECONDS = 0.1
_LIBRARIES = ("site-packages", "dist-packages")
_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS", "GGML_RPC_DEBUG")

_WARNING = """\
WARNING: {host} can be reached from other machines, and RPC has neither keys nor encryption.
Anyone who connects can read and change what is computed, and may take over this process.
Only use it on a network whose machines you all trust."""


class ServiceOptions(Struct, frozen=True, kw_only=True):
    """What the worker serves, and where."""

    host: str = "127.0.0.1"
    """IPv4 address to serve."""
    port: Annotated[int, typer.Option(min=1, max=65535)] = 50052
    """Port to serve."""
    memory: Annotated[int, typer.Option(min=0, metavar="MIB")] = 0
    """MiB to offer; 0 = what is free."""
    threads: Annotated[int, typer.Option(min=0, max=1024)] = 0
    """CPU threads; 0 = one per available core."""
    cache: bool = False
    """Keep weights on disk, so that they are sent once."""
    trusted_network: bool = False
    """Serve an address that other machines can reach."""
    no_sandbox: bool = False
    """Run without a sandbox, as GPUs need it."""


@arguments.with_option_groups
def rpc_worker(options: ServiceOptions) -> None:
    """Lend this machine's GPUs or CPU to a Shepherd with llamacpp.rpc_servers.

    Only for trusted networks: RPC has neither keys nor encryption.
    """
    from shepherd.backends.llamacpp.rpc.serve import Service, check_service, serve

    address = _address(options.host, trusted=options.trusted_network)
    folder = ""
    if options.cache:
        place = Paths.from_env(os.environ).cache / "rpc"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = str(place)
    service = Service(address, options.port, options.memory, options.threads, folder)
    check_service(service)
    if not ipaddress.ip_address(address).is_loopback:
        output.note(_WARNING.format(host=address))
    if options.no_sandbox:
        output.note(f"RPC worker on {address}:{service.port}, without a sandbox. Ctrl+C ends it.")
        serve(service)  # returns only by an error
    raise typer.Exit(_serve_in_box(service))


def _address(host: str, *, trusted: bool) -> str:
    """The IPv4 address to serve; raises UsageError."""
    try:
        address = ipaddress.IPv4Address("127.0.0.1" if host == "localhost" else host)
    except ValueError as error:
        raise UsageError(
            f"--host {host}: llama.cpp serves IPv4 addresses, such as 192.168.1.20."
        ) from error
    if not address.is_loopback and not trusted:
        raise UsageError(
            f"--host {host} can be reached from other machines, and RPC has neither keys nor "
            "encryption. Add --trusted-network if you trust all machines of that network."
        )
    return str(address)


def _serve_in_box(service: "Service") -> int:
    """Serve in a sandbox, which only sees the cache; raises ConfigError without one."""
    from shepherd.backends.llamacpp.native.devices import gpus

    if gpus():
        raise ConfigError("The sandbox hides this machine's GPUs. Add --no-sandbox to use them.")
    finding = find_box()
    if finding.box is None:
        raise ConfigError(
            f"No sandbox works here: {problems(finding)}. --no-sandbox starts the worker without."
        )
    with ExitStack() as resources:
        # without a cache, the worker's directory is empty and read-only
        root = service.cache or resources.enter_context(
            tempfile.TemporaryDirectory(prefix="shepherd-rpc-")
        )
        program, profile = boxed_program(service, Path(root).resolve())
        startable = resources.enter_context(finding.box.enter(program, profile))
        with interrupted_by(signal.SIGTERM), startable.start() as process:
            try:
                return _watch(process, service, finding.box.name)
            except KeyboardInterrupt:
                return INTERRUPTED
            finally:
                process.kill()


def boxed_program(service: "Service", root: Path) -> tuple[Program, Profile]:
    """The program of the worker, and what the sandbox lets it see."""
    module = "shepherd.backends.llamacpp.rpc.serve"
    # not all of sys.path, which may hold the current directory
    libraries = [path for path in sys.path if Path(path).name in _LIBRARIES]
    package = Path(__file__).parents[2]
    places = [Path(path).resolve() for path in (*libraries, package, sys.prefix, sys.base_prefix)]
    environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    profile = Profile(
        root=root,
        cwd=root,
        home=Path.home(),
        readable=tuple(places),
        network=True,
        read_only=not service.cache,
        limits=Limits(memory=None, file_size=None, cpu_seconds=None),  # models are large
    )
    argv = [sys.executable, "-m", module, service.to_json()]
    return Program(argv, root, environment), profile


def _watch(process: subprocess.Popen[bytes], service: "Service", box: str) -> int:
    """Report the start, and wait for the end; returns the exit code."""
    for stream in filter(None, (process.stdout, process.stderr)):
        threading.Thread(target=_forward, args=(stream,), daemon=True).start()
    if (devices := _offer(process, service)) is not None:
        sizes = ", ".join(map(size_text, devices))
        place = f"{service.host}:{service.port}"
        output.note(f"RPC worker on {place} offers {sizes}, in the {box} sandbox. Ctrl+C ends it.")
    return process.wait()


def _offer(process: subprocess.Popen[bytes], service: "Service") -> list[int] | None:
    """The memory of each device, once the worker answers; None if it ends before."""
    from shepherd.backends.llamacpp.rpc.protocol import Address, WorkerError, probe

    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            return [device.free for device in probe(Address(service.host, service.port)).devices]
        except WorkerError:  # it does not listen yet
            time.sleep(_POLL_SECONDS)
    return None


def _forward(stream: IO[bytes]) -> None:
    """Repeat what the worker writes, in a thread of its own, until it ends."""
    with contextlib.suppress(ValueError):  # the stream is closed at the end
        for line in stream:
            output.note(line.decode("utf-8", "replace").rstrip())
