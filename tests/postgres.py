"""A real PostgreSQL for tests: a server of its own in a temporary directory."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from shepherd.storage.postgres import Address
from tests.patience import PATIENCE, POLL

PASSWORD = "pass word:/@%"
ROLE = "shepherd"
MAX_CONNECTIONS = 100


def missing() -> str:
    """Why no PostgreSQL can be started here; "" if it can."""
    if _programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if os.geteuid() == 0 and _account() is None:
        return "there is no account for PostgreSQL, which does not run as root"
    return ""


def _programs() -> Path | None:
    """The directory with `initdb` and `postgres`."""
    path = shutil.which("initdb")
    found = [Path(path).parent] if path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((d for d in found if (d / "initdb").exists() and (d / "postgres").exists()), None)


def _account() -> pwd.struct_passwd | None:
    accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
    return accounts.get("postgres") or accounts.get("nobody")


class RealPostgres:
    """A server on a Unix socket, which can be killed and started again."""

    def __init__(self) -> None:
        programs = _programs()
        assert programs is not None
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._names = count()
        account = _account() if os.geteuid() == 0 else None
        self._user = None if account is None else (account.pw_uid, account.pw_gid)
        (self.folder / "password").write_text(PASSWORD)
        if self._user is not None:
            os.chown(self.folder, *self._user)
            os.chown(self.folder / "password", *self._user)
        self._run(
            "initdb", "-D", str(self.folder / "data"), "-U", ROLE, "-E", "UTF8", "--locale=C",
            "--no-sync", "--wal-segsize=1", "--no-instructions", "-A", "scram-sha-256",
            f"--pwfile={self.folder / 'password'}",
        )  # fmt: skip
        self._process = self._launched()
        self._wait()

    def address(self, database: str = "postgres") -> Address:
        """The address of a database, with the password."""
        return Address(f"postgresql://{ROLE}@/{database}?host={self.folder}", PASSWORD)

    def new_database(self) -> Address:
        """The address of a new, empty database."""
        import psycopg

        name = f"test{next(self._names)}"
        address = self.address()
        with psycopg.connect(address.url, password=PASSWORD, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.address(name)

    def start(self) -> None:
        """Start the killed server again, and wait until it answers."""
        self._process = self._launched()
        self._wait()

    def _launched(self) -> subprocess.Popen[Any]:
        options = {"fsync": "off", "listen_addresses": "", "shared_buffers": "16MB"}
        options |= {"min_wal_size": "2MB", "max_wal_size": "32MB"}
        options["max_connections"] = str(MAX_CONNECTIONS)
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        command += ["-k", str(self.folder)]
        command += [text for item in options.items() for text in ("-c", "=".join(item))]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())

    def _wait(self) -> None:
        """Wait until it answers; processes of a killed server may keep it from starting."""
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(POLL)
            if self._process.poll() is not None:
                self._process = self._launched()

    def kill(self) -> None:
        """Kill the server and its processes at once."""
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # so that it starts no other process in the meantime
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for number in (pid, *map(int, children)):
            with suppress(ProcessLookupError):  # it ends when the server has ended
                os.kill(number, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the server, and remove its files."""
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.address().url, password=PASSWORD).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._programs / program, *arguments]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **self._as_user())

    def _as_user(self) -> dict[str, Any]:
        options: dict[str, Any] = {"cwd": self.folder}
        if self._user is not None:
            options |= {"user": self._user[0], "group": self._user[1], "extra_groups": []}
        return options
