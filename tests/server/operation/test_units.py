"""The unit of systemd and the Dockerfile, as far as they can be run here."""

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shepherd.server.settings import ServerSettings
from tests.cli.program import Program
from tests.forked import SHEPHERD
from tests.patience import PATIENCE
from tests.server.harness import scripted

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "config" / "systemd" / "shepherd.service"
DOCKERFILE = ROOT / "config" / "docker" / "Dockerfile"
ANALYZE = shutil.which("systemd-analyze")
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))
MAX_EXPOSURE = "20"  # tenths


def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def unit_value(name: str) -> str:
    """The last value of an entry of the unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)[-1]


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_and_finds_it_well_protected(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/shepherd/bin/shepherd", SHEPHERD))
    checked = run([str(ANALYZE), "verify", "--man=no", str(unit)])
    assert [line for line in checked.stderr.splitlines() if unit.name in line] == []
    if checked.returncode != 0:
        pytest.skip(f"systemd-analyze does not work here: {checked.stderr.strip()}")
    security = [str(ANALYZE), "security", "--offline=true", "--no-pager"]
    rated = run([*security, f"--threshold={MAX_EXPOSURE}", str(unit)])
    if "unrecognized option" in rated.stderr:
        pytest.skip("this systemd-analyze can't rate files")
    assert rated.returncode == 0, rated.stdout


def test_the_unit_starts_reloads_and_ends_the_server(tmp_path: Path) -> None:
    program, *options = shlex.split(unit_value("ExecStart").replace("%t", str(tmp_path)))
    assert program.endswith("/shepherd")
    options[options.index("--port") + 1] = "0"
    (tmp_path / "shepherd").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(PATIENCE)
        systemd.bind(str(tmp_path / "notify"))
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        started = Program(tmp_path, tmp_path, env).start_scripted("text: hi", *options)
        with started as process:
            assert systemd.recv(100) == b"READY=1"
            assert (tmp_path / "shepherd" / "socket").is_socket()
            reload = unit_value("ExecReload").replace("$MAINPID", str(process.pid))
            assert run(shlex.split(reload)).returncode == 0
            assert systemd.recv(100).startswith(b"RELOADING=1\n")
            assert systemd.recv(100) == b"READY=1"
            process.terminate()
            assert systemd.recv(100) == b"STOPPING=1"
            process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert int(unit_value("TimeoutStopSec")) > ServerSettings().shutdown_seconds


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def test_the_image_runs_without_root_and_without_secrets() -> None:
    assert len(arguments("FROM")) == 2
    assert arguments("USER") == ["10001"]
    text = DOCKERFILE.read_text()
    assert not re.search(r"(?i)(secret|password|token|api_key)\s*=", text)
    assert not arguments("ARG")
    ignored = Path(f"{DOCKERFILE}.dockerignore").read_text().splitlines()
    assert "*" in ignored
    own = [rest.split()[:-1] for rest in arguments("COPY") if not rest.startswith("--from")]
    sources = {source for part in own for source in part}
    assert {f"!{source}" for source in sources} <= {*ignored}
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.parametrize("command", arguments("RUN"))
def test_the_commands_of_the_build_are_valid_shell(command: str) -> None:
    assert run(["sh", "-n", "-c", command]).returncode == 0


def test_the_health_check_follows_ready() -> None:
    (check,) = arguments("HEALTHCHECK")
    _, *command = json.loads(check[check.index("CMD ") + 4 :])
    with scripted("text: hi") as server:
        command = [part.replace(":8000/", f":{server.port}/") for part in command]
        assert run([sys.executable, *command]).returncode == 0
        server.app.context.lifecycle.drain()
        assert run([sys.executable, *command]).returncode == 1
    assert run([sys.executable, *command]).returncode == 1


def test_the_entry_point_serves_with_keys(tmp_path: Path) -> None:
    (entry,), (options,) = arguments("ENTRYPOINT"), arguments("CMD")
    program, *flags = [*json.loads(entry), *json.loads(options)]
    assert program == "shepherd"
    flags[flags.index("--port") + 1] = "0"
    with Program(tmp_path, tmp_path).start_scripted("text: hi", *flags) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert "There are no API keys yet" in lines[0]
    assert "Serving" in lines[1]


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_has_no_complaint() -> None:
    checked = run([str(HADOLINT), str(DOCKERFILE)])
    assert (checked.returncode, checked.stdout) == (0, "")
