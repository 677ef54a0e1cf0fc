"""Setting up behind a company's proxy: pip and uv trust what the system trusts."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORD = """#!/bin/sh
env | grep -E '^(UV_|PIP_CERT|SSL_CERT|CMAKE_ARGS|CXXFLAGS)' | sort > "$RECORDS/$(basename "$0")"
echo "$*" >> "$RECORDS/$(basename "$0").calls"
"""
MAKE_VENV = """#!/bin/sh
case "$*" in "-m venv .venv")
    mkdir -p .venv/bin
    for name in python pip shepherd; do cp "$RECORDS/record" .venv/bin/$name; done
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with little in it, and programs beside it that note their environment."""
    project, programs = tmp_path / "project", tmp_path / "bin"
    for path in (project / "scripts", programs):
        path.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install", project / "scripts")
    shutil.copy(ROOT / "Makefile", project)
    for name in ("requirements.lock", "pyproject.toml"):
        (project / name).write_text("some-package==1.0\n")
    for name, code in {"uv": RECORD, "c++": RECORD, "a-python": MAKE_VENV}.items():
        _write_program(programs / name, code)
    _write_program(tmp_path / "record", RECORD)
    return project


def _write_program(path: Path, code: str) -> None:
    path.write_text(code)
    path.chmod(0o755)


def set_up(project: Path, *command: str, **more: str) -> None:
    base = project.parent
    env = {"PATH": f"{base / 'bin'}:/usr/bin:/bin", "RECORDS": str(base), "PYTHON": "a-python"}
    subprocess.run(command, cwd=project, env=env | more, check=True, capture_output=True)


def seen_by(project: Path, program: str) -> dict[str, str]:
    lines = (project.parent / program).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("command", [("scripts/install", "requirements.lock"), ("make", "lock")])
def test_uv_trusts_what_the_system_trusts(
    project: Path, command: tuple[str, ...], tmp_path: Path
) -> None:
    own = str(tmp_path / "company.pem")
    set_up(project, *command, SSL_CERT_FILE=own)
    seen = seen_by(project, "uv")
    assert {seen["UV_SYSTEM_CERTS"], seen["UV_NATIVE_TLS"]} == {"true"}
    assert seen["SSL_CERT_FILE"] == own


@pytest.mark.parametrize("command", [("scripts/install", "requirements.lock"), ("make", "lock")])
def test_who_wants_other_certificates_says_so(project: Path, command: tuple[str, ...]) -> None:
    set_up(project, *command, UV_SYSTEM_CERTS="false", UV_NATIVE_TLS="false")
    seen = seen_by(project, "uv")
    assert {seen["UV_SYSTEM_CERTS"], seen["UV_NATIVE_TLS"]} == {"false"}


def test_pip_which_fetches_uv_has_the_same_certificates(project: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "uv").unlink()
    own = tmp_path / "company.pem"
    own.touch()
    with pytest.raises(subprocess.CalledProcessError):  # this pip fetches nothing
        set_up(project, "scripts/install", "requirements.lock", SSL_CERT_FILE=str(own))
    assert seen_by(project, "pip")["PIP_CERT"] == str(own)


def test_images_are_compiled_in_and_an_older_build_is_made_again_on_request(project: Path) -> None:
    calls = project.parent / "uv.calls"
    set_up(project, "scripts/install", "requirements.lock")
    assert "-DLLAVA_BUILD=ON" in seen_by(project, "uv")["CMAKE_ARGS"]
    assert "--reinstall" not in calls.read_text()
    set_up(project, "scripts/install", "requirements.lock", IMAGES="1")
    assert "--reinstall-package=llama-cpp-python" in calls.read_text()
    calls.write_text("")
    library = project / ".venv/lib/python3.11/site-packages/llama_cpp/lib/libmtmd.so"
    library.parent.mkdir(parents=True)
    library.touch()
    set_up(project, "scripts/install", "requirements.lock", IMAGES="1")
    assert calls.read_text() == "", "a build with images stays"


def test_rpc_is_compiled_in_on_request_and_kept(project: Path) -> None:
    calls = project.parent / "uv.calls"
    set_up(project, "make", "chat")
    assert "-DGGML_RPC=ON" not in seen_by(project, "uv")["CMAKE_ARGS"]
    calls.write_text("")
    set_up(project, "make", "chat", "RPC=1")
    assert "-DGGML_RPC=ON" in seen_by(project, "uv")["CMAKE_ARGS"]
    assert "--reinstall-package=llama-cpp-python" in calls.read_text()
    calls.write_text("")
    set_up(project, "make", "chat", "RPC=1")
    assert calls.read_text() == "", "a build with RPC stays"
    (project / "requirements.lock").write_text("some-package==2.0\n")
    set_up(project, "make", "chat")
    assert "-DGGML_RPC=ON" in seen_by(project, "uv")["CMAKE_ARGS"]
    assert len((project.parent / "shepherd.calls").read_text().splitlines()) == 4


def test_builds_have_the_kernels_of_llamacpps_own(project: Path) -> None:
    set_up(project, "scripts/install", "requirements.lock")
    assert "-DGGML_LLAMAFILE=ON" in seen_by(project, "uv")["CMAKE_ARGS"]


@pytest.mark.parametrize("ability", ["", "amx_int8 amx_tile", "avx512_fp16"])
def test_a_build_for_new_processors_is_repaired(
    project: Path, tmp_path: Path, ability: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : sse2 avx2 {ability}\n")
    set_up(project, "scripts/install", "requirements.lock", CPUINFO=str(cpuinfo))
    flags = seen_by(project, "uv").get("CXXFLAGS", "").strip()
    assert flags == (f'-include "{project}/scripts/processor.h"' if ability else "")


AMX = """
void multiply(void) {
    char config[64] = {1};
    config[16] = config[48] = 8;
    _tile_loadconfig(config);
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is of this processor")
def test_the_whole_configuration_of_tiles_is_written(tmp_path: Path) -> None:
    (tmp_path / "tiles.cpp").write_text(AMX)
    done = compiled(tmp_path / "tiles.cpp", "-O3", "-mamx-tile")
    before = done.stdout.partition("ldtilecfg")[0]
    assert before.count("$8") == 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the vectors are of this processor")
def test_sums_of_products_are_not_kept_in_16_bits(tmp_path: Path) -> None:
    (tmp_path / "sums.cpp").write_text("#ifdef __AVX512FP16__\n#error in 16 bits\n#endif\n")
    compiled(tmp_path / "sums.cpp", "-mavx512fp16")


def compiled(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    header = ROOT / "scripts" / "processor.h"
    command = ("c++", *options, "-include", header, "-S", "-o-", file)
    return subprocess.run(command, check=True, capture_output=True, text=True)
