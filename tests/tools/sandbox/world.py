"""Everything around a box that an attempt to escape would change."""

import hashlib
import json
import os
import resource
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.seccomp import this_architecture

_PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/etc", "/usr", "/usr/local/bin", "/opt", "/var")
_MORE_PLACES = ("/run", "/etc/cron.d", "/sys/fs/cgroup", "/dev/mqueue")
_SHARED_KEY = 0x5EED
Tree = dict[str, tuple[object, ...]]


class World:
    """A project with secrets, what lies outside, and those who listen there."""

    def __init__(self, base: Path) -> None:
        self._resources = ExitStack()
        self.base = base
        self.secret = f"secret-{secrets.token_hex(8)}"
        self.mark = secrets.token_hex(8)
        self.outside, self.root, self.home = (base / n for n in ("outside", "project", "home"))
        self._make_files()
        self.victim = subprocess.Popen(
            ["sleep", "600"], env={"SECRET": self.secret}, cwd=self.outside
        )
        self._listeners = self._listen()
        self._before = self._state()

    def close(self) -> None:
        """Close and end everything, survivors too."""
        for process in self._survivors():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        self.victim.kill()
        self.victim.wait()
        self._resources.close()

    def _make_files(self) -> None:
        for path in (self.outside / "dir", self.home / ".ssh", self.root / "private"):
            path.mkdir(parents=True)
        for path in (".git/hooks", "src", "sub/.git", "linked"):
            (self.root / path).mkdir(parents=True)
        text = f"KEY={self.secret}\n"
        for path in (".env", "sub/.env", "private/key"):
            (self.root / path).write_text(text, "utf-8")
        for path in (self.outside / "secret", self.home / ".ssh" / "id_rsa", self.home / ".netrc"):
            path.write_text(text, "utf-8")
        for path in (".git/config", "sub/.git/config"):
            (self.root / path).write_text("[core]\n", "utf-8")
        (self.root / ".git" / "HEAD").write_text("ref: refs/heads/main\n", "utf-8")
        for path in (self.outside / "file", self.outside / "run.sh", self.home / ".bashrc"):
            path.write_text("kept", "utf-8")
        self._make_links()

    def _make_links(self) -> None:
        (self.root / "link_out").symlink_to(self.outside)
        (self.root / "link_file").symlink_to(self.outside / "file")
        (self.root / "link_env").symlink_to(".env")
        (self.root / "sub" / "link_env").symlink_to("../.env")
        (self.root / "protected_link").symlink_to("linked")
        (self.root / "hard_env").hardlink_to(self.root / ".env")
        (self.root / "hard_config").hardlink_to(self.root / ".git" / "config")

    def _listen(self) -> dict[str, socket.socket]:
        # a name that fits into a socket's address
        short = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="sock-")))
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        made = {"tcp": tcp, "udp": udp}
        addresses = {
            "unix": str(short / "socket"),
            "abstract": f"\0{self.mark}",
            "unix.dgram": str(short / "socket.dgram"),
            "abstract.dgram": f"\0{self.mark}.dgram",
        }
        for name, address in addresses.items():
            kind = socket.SOCK_DGRAM if name.endswith("dgram") else socket.SOCK_STREAM
            made[name] = socket.socket(socket.AF_UNIX, kind)
            made[name].bind(address)
        (self.root / "inside.sock").symlink_to(short / "socket")
        for name, listener in made.items():
            self._resources.callback(listener.close)
            listener.setblocking(False)
            if listener.type == socket.SOCK_STREAM and name != "tcp":
                listener.listen()
        self._socket = str(short / "socket")
        return made

    @property
    def profile(self) -> Profile:
        """What holds in it."""
        protected = (".git", ".shepherd.toml", "sub/.git", "protected_link")
        hidden = (".env", "sub/.env", "private")
        return Profile(
            self.root,
            self.root,
            self.home,
            tuple(self.root / name for name in protected),
            tuple(self.root / name for name in hidden),
        )

    def environment(self) -> dict[str, str]:
        """The variables that attempts use."""
        architecture = this_architecture()
        assert architecture is not None
        return {
            **os.environ,
            "HOME": str(self.home),
            "REAL_HOME": str(self.home),
            "OUTSIDE": str(self.outside),
            "ROOT": str(self.root),
            "VICTIM": str(self.victim.pid),
            "PARENT": str(os.getpid()),
            "TCP": str(self._listeners["tcp"].getsockname()[1]),
            "UDP": str(self._listeners["udp"].getsockname()[1]),
            "SOCKET": self._socket,
            "ABSTRACT": self.mark,
            "MARK": self.mark,
            "NUMBERS": json.dumps(dict(architecture.numbers)),
        }

    def damage(self, output: str) -> list[str]:
        """What the attempts did, in words; nothing if the box held."""
        after = self._state()
        return [
            *_differences(self._before, after),
            *(f"{name} was reached" for name, s in self._listeners.items() if _reached(s)),
            *(f"process {p} survived" for p in self._survivors()),
            *(["a secret was printed"] if self.secret in output else []),
            *(["an attempt saw that it got out"] if "ESCAPED" in output.splitlines() else []),
            *(f"{path} has a secret" for path in self._copies()),
            *(["the victim is dead"] if self.victim.poll() is not None else []),
        ]

    def _state(self) -> Tree:
        git = self.root / ".git"
        trees = [_tree(path) for path in (self.outside, self.home, git, self.root / "sub" / ".git")]
        state: Tree = {name: value for tree in trees for name, value in tree.items()}
        state["base"] = tuple(sorted(path.name for path in self.base.iterdir()))
        state["link"] = ((self.root / "protected_link").readlink(),)
        state["settings"] = ((self.root / ".shepherd.toml").exists(),)
        state["host"] = tuple(str(path) for path in _strays())
        state["shared"] = tuple(_shared())
        state["victim"] = _process(self.victim.pid)
        state["names"] = (socket.gethostname(), str(Path.cwd()))
        state["kernel"] = tuple(Path("/proc/sys/kernel", n).read_text() for n in ("core_pattern",))
        return state

    def _survivors(self) -> Iterator[str]:
        needle = f"MARK={self.mark}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if needle in path.read_bytes():
                    yield path.parent.name
            except OSError:
                continue

    def _copies(self) -> Iterator[Path]:
        secret = {(self.root / n).stat().st_ino for n in (".env", "sub/.env", "private/key")}
        for directory, _directories, files in os.walk(self.root):
            for path in (Path(directory, name) for name in files):
                if path.is_symlink() or not path.is_file() or path.stat().st_ino in secret:
                    continue
                path.chmod(path.stat().st_mode | 0o400)
                if self.secret.encode() in path.read_bytes():
                    yield path


def _tree(top: Path) -> Tree:
    paths = [top, *top.rglob("*")]
    return {str(path): _entry(path) for path in paths}


def _entry(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    attributes = tuple(os.listxattr(path, follow_symlinks=False))
    owner = (status.st_mode, status.st_uid, status.st_gid)
    return (status.st_ino, *owner, status.st_mtime_ns, status.st_nlink, content, attributes)


def _strays() -> Iterator[Path]:
    for place in (*_PLACES, *_MORE_PLACES):
        path = Path(place, "shepherd-escape")
        if path.exists():
            yield path
    yield from Path("/sys/fs/cgroup").glob("*/shepherd-escape")


def _shared() -> Iterator[str]:
    for kind in ("shm", "msg", "sem"):
        path = Path("/proc/sysvipc", kind)
        lines = path.read_text("utf-8").splitlines()[1:] if path.exists() else []
        yield from (line for line in lines if line.split()[0] == str(_SHARED_KEY))


def _process(pid: int) -> tuple[object, ...]:
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    score = Path(f"/proc/{pid}/oom_score_adj").read_text("utf-8")
    name = Path(f"/proc/{pid}/comm").read_text("utf-8")
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    return (limits, state in "TtZX", score, name, nice, frozenset(os.sched_getaffinity(pid)))


def _differences(before: Tree, after: Tree) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"{name} changed from {before.get(name)} to {after.get(name)}"


def _reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(1)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
