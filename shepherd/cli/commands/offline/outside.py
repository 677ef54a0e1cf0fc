"""A network with no way out, in which every try to leave it is seen.

This process moves into namespaces of its own. What is not for loopback goes to a device that it
reads itself (TUN), lookups of names too, and the kernel counts what has no route. So a try is seen
whatever library makes it, without a privilege and without tracing a program.
"""

import fcntl
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.sandbox.inside import namespaces, native

_DEVICE, _OWN, _ROUTER, _RESOLVER = b"outside", "192.0.2.1", "192.0.2.2", "192.0.2.53"
_PROOF, _PROOF_NAME = "192.0.2.99", "proof.invalid"
_PROOF_SECONDS = 5.0
_RESOLVING = f"nameserver {_RESOLVER}\noptions timeout:1 attempts:1\n"
_ANSWERERS = ("/run/systemd/resolve", "/run/nscd", "/run/dbus", "/run/user")
"""Where services listen that would look up a name for a program, outside of its network."""

_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
_SIOCSIFADDR, _SIOCSIFDSTADDR = 0x8916, 0x8918
_SIOCADDRT, _RTF_UP_GATEWAY = 0x890B, 0x3
_IFREQ, _RTENTRY = 40, 120  # the sizes of these structures
_PROTOCOLS = {6: "tcp", 17: "udp"}
_DNS = 53


class Outside:
    """What programs sent out of this network, since `enter`."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, str], str] = {}
        """Sentences by protocol, port here, and where to: what is sent again is one try."""
        self._proofs = 0

    def enter(self, scratch: Path) -> None:
        """Leave the machine's network; `scratch` takes files. This process must have one thread.

        Raises ToolError if that, or seeing what leaves, does not work here.
        """
        try:
            namespaces.own_namespaces(native.CLONE_NEWNS | native.CLONE_NEWNET)
            namespaces.raise_interface(b"lo")
            _replace_resolver(scratch)
            device = _open_device()
        except OSError as error:
            raise ToolError(f"No network of its own can be made here: {error}") from error
        threading.Thread(target=self._read, args=(device,), daemon=True).start()
        threading.Thread(target=_look_up, args=(_PROOF_NAME,), daemon=True).start()
        self._await(f"{_PROOF_NAME} (a lookup)")
        self.prove()

    def prove(self) -> None:
        """Make sure, by a try of its own, that all tries so far are seen; raises ToolError."""
        self._proofs += 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
            plug.sendto(b"", (_PROOF, self._proofs))
        self._await(f"{_PROOF}:{self._proofs} (udp)")

    def _await(self, proof: str) -> None:
        deadline = time.monotonic() + _PROOF_SECONDS
        while not any(where == proof for _, _, where in list(self._seen)):
            if time.monotonic() > deadline:
                raise ToolError("A try to connect was not seen, so others may be missing.")
            time.sleep(0.01)

    def tries(self) -> list[str]:
        """A sentence for each try, but for those of `prove`; call that first."""
        proofs = (f"{_PROOF}:", _PROOF_NAME)
        routed = [text for key, text in self._seen.items() if not key[2].startswith(proofs)]
        return routed + ["a program to an address without a route"] * _unrouted()

    def _read(self, device: int) -> None:
        """Note all packets; nobody answers them."""
        while packet := os.read(device, 65_536):
            is_v4 = packet[0] >> 4 == 4
            if is_v4:
                protocol, address = packet[9], packet[16:20]
                rest = packet[(packet[0] & 15) * 4 :]
            else:
                protocol, address, rest = packet[6], packet[24:40], packet[40:]
            if is_v4 or protocol in _PROTOCOLS:  # by IPv6 the kernel itself sends others
                self._note(protocol, str(ip_address(address)), rest)

    def _note(self, protocol: int, address: str, rest: bytes) -> None:
        """Note a packet whose part behind the header of IP is `rest`."""
        here, port = struct.unpack_from("!HH", rest) if protocol in _PROTOCOLS else (0, 0)
        where = f"{address}:{port} ({_PROTOCOLS.get(protocol, 'other')})"
        if address == _RESOLVER and port == _DNS:
            where = f"{_name(rest[20:])} (a lookup)"  # behind the headers of UDP and DNS
        key = protocol, here, where
        if key not in self._seen:
            self._seen[key] = f"{_program(_PROTOCOLS.get(protocol, ''), here)} to {where}"


def _look_up(name: str) -> None:
    """Ask for a name; nobody answers."""
    with suppress(OSError):
        socket.getaddrinfo(name, None)


def _replace_resolver(scratch: Path) -> None:
    """Have names looked up by packets alone. Raises OSError."""
    native.mount("", "/", "", native.MS_REC | native.MS_PRIVATE)
    place = Path("/etc/resolv.conf").resolve()
    for answerer in filter(os.path.isdir, _ANSWERERS):
        native.mount("tmpfs", answerer, "tmpfs", native.MS_NOSUID)
    if not place.exists():  # it was where a service listens
        place.touch()
    (scratch / "resolv.conf").write_text(_RESOLVING, "ascii")
    native.mount(str(scratch / "resolv.conf"), str(place), "", native.MS_BIND)


def _open_device() -> int:
    """A descriptor to read what leaves this network by IPv4. Raises OSError."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    name = _DEVICE.ljust(16, b"\0")
    fcntl.ioctl(
        device, _TUNSETIFF, (name + struct.pack("H", _TUN_WITHOUT_HEADER)).ljust(_IFREQ, b"\0")
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        for request, address in ((_SIOCSIFADDR, _OWN), (_SIOCSIFDSTADDR, _ROUTER)):
            fcntl.ioctl(plug, request, (name + _address(address)).ljust(_IFREQ, b"\0"))
        namespaces.raise_interface(_DEVICE)
        places = _address("0.0.0.0") + _address(_ROUTER) + _address("0.0.0.0")
        route = bytes(8) + places + struct.pack("H", _RTF_UP_GATEWAY)
        fcntl.ioctl(plug, _SIOCADDRT, route.ljust(_RTENTRY, b"\0"))
    with suppress(OSError):  # only so that a try ends in seconds
        Path("/proc/sys/net/ipv4/tcp_syn_retries").write_text("1", "ascii")
    return device


def _address(text: str) -> bytes:
    """`struct sockaddr_in` without a port."""
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def _unrouted() -> int:
    """How often the kernel found no way out."""
    names, values = Path("/proc/self/net/snmp").read_text("ascii").splitlines()[:2]
    count = int(dict(zip(names.split(), values.split(), strict=True))["OutNoRoutes"])
    with suppress(FileNotFoundError):  # a kernel without IPv6
        lines = Path("/proc/self/net/snmp6").read_text("ascii").splitlines()
        count += int(dict(line.split() for line in lines)["Ip6OutNoRoutes"])
    return count


def _name(question: bytes) -> str:
    """The name that a question of DNS is about."""
    labels: list[str] = []
    while question and question[0]:
        labels.append(question[1 : question[0] + 1].decode("ascii", "replace"))
        question = question[question[0] + 1 :]
    return ".".join(labels)


def _program(protocol: str, port: int) -> str:
    """The command line that has this port; it waits for its answer."""
    for table in map(Path, (f"/proc/self/net/{protocol}", f"/proc/self/net/{protocol}6")):
        rows = table.read_text("ascii").splitlines()[1:] if table.is_file() else []
        inodes = {row.split()[9] for row in rows if row.split()[1].endswith(f":{port:04X}")}
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if str(link.readlink()).removeprefix("socket:").strip("[]") in inodes:
                    words = (link.parents[1] / "cmdline").read_bytes().split(b"\0")
                    return b" ".join(words).decode("utf-8", "replace").strip()
    return "a program"
