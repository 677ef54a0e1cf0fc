"""The unit of systemd and the Dockerfiles, as far as they can be run here."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from shepherd.server.settings import ServerSettings
from tests.cli.program import Program
from tests.examples import PROFILE
from tests.forked import SHEPHERD
from tests.patience import PATIENCE
from tests.server.harness import scripted

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "config" / "systemd" / "shepherd.service"
DOCKERFILE, RAY_DOCKERFILE = (ROOT / "config" / name / "Dockerfile" for name in ("docker", "ray"))
ANALYZE = shutil.which("systemd-analyze")
BWRAP = shutil.which("bwrap")
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


def instructions(file: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def arguments(name: str, file: Path = DOCKERFILE) -> list[str]:
    return [rest for instruction, rest in instructions(file) if instruction == name]


each_image = pytest.mark.parametrize("file", [DOCKERFILE, RAY_DOCKERFILE], ids=["docker", "ray"])


@each_image
def test_the_image_runs_without_root_and_without_secrets(file: Path) -> None:
    assert len(arguments("FROM", file)) == (2 if file is DOCKERFILE else 1)
    assert arguments("USER", file)[-1] in ("10001", "1000")
    text = file.read_text()
    assert not re.search(r"(?i)(secret|password|token|api_key)\s*=", text)
    assert not arguments("ARG", file)
    ignored = Path(f"{file}.dockerignore").read_text().splitlines()
    assert "*" in ignored
    own = [rest.split()[:-1] for rest in arguments("COPY", file) if not rest.startswith("--from")]
    sources = {source for part in own for source in part if not source.startswith("--chown")}
    assert {f"!{source}" for source in sources} <= {*ignored}
    assert all((ROOT / source).exists() for source in sources)


@each_image
def test_the_image_compiles_for_all_processors_and_tells_its_health(file: Path) -> None:
    """Its steps in their order: a compiler and the options come before the package."""
    order = [f"{name} {rest}" for name, rest in instructions(file)]
    (compiler,) = (n for n, step in enumerate(order) if "build-essential cmake" in step)
    (options,) = (n for n, step in enumerate(order) if "-DGGML_NATIVE=OFF" in step)
    builds = [n for n, step in enumerate(order) if "pip install" in step]
    assert compiler < options < min(builds)
    assert len(arguments("HEALTHCHECK", file)) == 1


class Stage:
    """A stage of an image in a clean directory: of this machine it sees /usr, /etc and Python."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, Path("/")
        self.env = {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", "HOME": "/root"}
        network = re.compile(r"(PIP|SSL|REQUESTS|HTTPS?|NO)_[A-Z_]+", re.IGNORECASE)
        self.env |= {name: text for name, text in os.environ.items() if network.fullmatch(name)}
        for name in ("root", "tmp"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")

    def copy(self, rest: str, built: "Stage | None" = None) -> None:
        """COPY: files, or what is in a directory."""
        *sources, target = [part for part in rest.split() if not part.startswith("--")]
        origin = built.root if built is not None and "--from=" in rest else ROOT
        folder = self.root / (self.folder / target).relative_to("/")
        ignored = shutil.ignore_patterns("__pycache__") if origin is ROOT else None
        for source in (origin / source.lstrip("/") for source in sources):
            if source.is_dir():
                shutil.copytree(source, folder, True, ignored, dirs_exist_ok=True)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder)

    def run(self, command: str) -> str:
        """RUN: with packages of this machine, and without the making of users."""
        steps = [step.strip() for step in command.split("&&")]
        for step in steps:
            if step.startswith("apt-get install"):
                names = [part for part in step.split()[2:] if not part.startswith("-")]
                if run(["dpkg-query", "-W", *names]).returncode != 0:
                    pytest.skip(f"not installed here: {' or '.join(names)}")
        outside = re.compile("apt-get|rm -rf /var/lib/apt|useradd")
        inside = " && ".join(step for step in steps if not outside.match(step)) or "true"
        box = [str(BWRAP), "--unshare-all", "--share-net", "--die-with-parent", "--clearenv"]
        box += ["--bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev"]
        for shown in ("/usr", "/etc", sys.base_prefix):
            box += ["--ro-bind", shown, shown]
        for name, text in self.env.items():
            box += ["--setenv", name, text]
        box += ["--chdir", str(self.folder), "sh", "-e", "-c", inside]
        done = subprocess.run(box, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def set(self, rest: str) -> None:
        """ENV: values that may hold the path from before."""
        for name, _, text in (pair.partition("=") for pair in shlex.split(rest)):
            self.env[name] = text.replace("$PATH", self.env["PATH"])

    def enter(self, folder: str) -> None:
        """WORKDIR."""
        self.folder = Path(folder)
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)


def from_base(image: str, root: Path) -> Stage:
    """FROM: Python is that of this machine; Ray is installed in the version of the tag."""
    stage = Stage(root)
    if image.startswith("rayproject/ray:"):
        stage.run("python -m venv /home/ray/python")
        stage.set("HOME=/home/ray PATH=/home/ray/python/bin:$PATH")
        stage.run(f"pip install 'ray[serve]=={image.partition(':')[2].partition('-')[0]}'")
    return stage


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(PROFILE != "long", reason="takes packages from an index and may compile")
@pytest.mark.skipif(BWRAP is None, reason="bwrap is not installed")
@each_image
def test_the_steps_of_the_image_make_a_shepherd_that_answers(file: Path, tmp_path: Path) -> None:
    """Compiles llama.cpp, for which a machine of two cores needs half an hour."""
    stages: list[Stage] = []
    for name, rest in instructions(file):
        if name == "FROM":
            stages.append(from_base(rest, tmp_path / f"stage{len(stages)}"))
        elif name == "COPY":
            stages[-1].copy(rest, stages[0])
        elif name in ("RUN", "ENV", "WORKDIR"):
            step = {"RUN": stages[-1].run, "ENV": stages[-1].set, "WORKDIR": stages[-1].enter}
            step[name](rest)
    assert stages[-1].run("shepherd -e 'Say hello.'").strip()
    if file is RAY_DOCKERFILE:  # the package does not replace the Ray of the image
        version = stages[-1].run("python -c 'import ray; print(ray.__version__)'").strip()
        assert arguments("FROM", file)[0].startswith(f"rayproject/ray:{version}-")


def test_the_package_builds_from_what_the_image_of_ray_copies(tmp_path: Path) -> None:
    """pip takes the directory that the steps fill, without anything else of the repository."""
    stage = Stage(tmp_path / "stage")
    for rest in arguments("COPY", RAY_DOCKERFILE):
        stage.copy(rest)
    folder = stage.root / "tmp" / "shepherd"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert "ray" in project["optional-dependencies"]
    for named in (project["readme"], *project["license-files"]):
        assert (folder / named).exists()
    assert (folder / "shepherd" / "__main__.py").exists()


@pytest.mark.parametrize("command", [*arguments("RUN"), *arguments("RUN", RAY_DOCKERFILE)])
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
    checked = run([str(HADOLINT), str(DOCKERFILE), str(RAY_DOCKERFILE)])
    assert (checked.returncode, checked.stdout) == (0, "")
