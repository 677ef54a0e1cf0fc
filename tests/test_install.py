"""The set-up: one build of llama.cpp for all clones, and certificates of a company's proxy."""

import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORD = """#!/bin/sh
env | grep -E '^(UV_|PIP_CERT|SSL_CERT|CXXFLAGS)' | sort > "$RECORDS/$(basename "$0")"
echo "$*" >> "$RECORDS/$(basename "$0").calls"
test -z "${FAIL:-}" || exit 1
test "$1" != -c || exec "$REAL_PYTHON" "$@"
folder=
while [ $# -gt 0 ]; do
    case $1 in
    --find-links) folder=$2 ;;
    --dest) cp "$folder"/*.whl "$2" || exit 1 ;;
    --wheel-dir)
        sleep "${SLOW:-0}"
        echo "$CMAKE_ARGS" > "$2/llama_cpp_python-1.0-py3-none-any.whl"
        ;;
    esac
    shift
done
"""
"""A program that notes how it is called; as pip, it makes a wheel or copies one."""
LOCK = (
    "one==1.0 \\\n    --hash=a\nllama-cpp-python==1.0 \\\n    --hash=b\ntwo==2.0 \\\n    --hash=c\n"
)
MAKE_VENV = """#!/bin/sh
case "$*" in "-m venv "*)
    mkdir -p "$3/bin"
    for name in python pip shepherd; do cp "$RECORDS/record" "$3/bin/$name"; done
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
    shutil.copy(ROOT / "scripts" / "processor.h", project / "scripts")
    for name in ("requirements.lock", "pyproject.toml"):
        (project / name).write_text(LOCK)
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
    env |= {"HOME": str(base), "REAL_PYTHON": sys.executable} | more
    subprocess.run(command, cwd=project, env=env, check=True, capture_output=True)


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


def compiled_with(project: Path) -> list[str]:
    """What each wheel of llama.cpp in the cache was compiled with."""
    wheels = (project.parent / ".cache/shepherd/wheels").glob("*/*.whl")
    return sorted(wheel.read_text() for wheel in wheels)


def installed(project: Path) -> list[str]:
    """The wheels that were installed since the last look."""
    calls = project.parent / "uv.calls"
    words = calls.read_text().split() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return [Path(word).read_text() for word in words if word.endswith(".whl")]


def another_clone(project: Path) -> Path:
    shutil.copytree(
        project, clone := project.parent / "clone", ignore=shutil.ignore_patterns(".venv*")
    )
    return clone


def test_llamacpp_is_compiled_once_for_all_clones_and_pythons(project: Path) -> None:
    set_up(project, "make", "chat")
    (wheel,) = compiled_with(project)
    assert "-DLLAVA_BUILD=ON" in wheel, "with images"
    assert "-DGGML_LLAMAFILE=ON" in wheel, "with the kernels of llama.cpp's own builds"
    assert installed(project) == [wheel]
    set_up(project, "make", "chat")
    assert installed(project) == [], "nothing to do"
    clone = another_clone(project)
    set_up(clone, "make", "chat")
    set_up(clone, "make", "chat", "VENV=.venv-3.14")
    assert (clone / ".venv-3.14/bin/python").exists()
    assert installed(clone) == [wheel, wheel]
    assert compiled_with(project) == [wheel]
    calls = (project.parent / "python.calls").read_text()
    assert calls.count("pip wheel") == 1
    assert "--require-hashes" in calls
    assert list((project.parent / ".cache/shepherd/wheels").glob(".new*")) == []


def test_of_two_clones_at_once_one_compiles_and_the_other_waits(project: Path) -> None:
    def compile_slowly(clone: Path) -> None:
        set_up(clone, "make", "chat", SLOW="1")

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_slowly, (project, another_clone(project))))
    assert (project.parent / "python.calls").read_text().count("pip wheel") == 1
    assert installed(project) == compiled_with(project) * 2


def test_a_failed_compilation_leaves_nothing_and_is_tried_again(project: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        set_up(project, "make", "chat", FAIL="1")
    assert compiled_with(project) == installed(project) == []
    set_up(project, "make", "chat")
    assert installed(project) == compiled_with(project) != []


@pytest.mark.parametrize(
    ("choice", "switch"),
    [
        ("GPU=cuda", "-DGGML_CUDA=ON"),
        ("GPU=metal", "-DGGML_METAL=ON"),
        ("GPU=vulkan", "-DGGML_VULKAN=ON"),
        ("GPU=rocm", "-DGGML_HIP=ON"),
        ("RPC=1", "-DGGML_RPC=ON"),
        ("CMAKE_ARGS=-DGGML_SYCL=on", "-DGGML_SYCL=on"),
    ],
)
def test_a_build_is_made_on_request_and_kept(project: Path, choice: str, switch: str) -> None:
    set_up(project, "make", "chat")
    (plain,) = installed(project)
    assert switch not in plain
    set_up(project, "make", "chat", choice)
    (wheel,) = installed(project)
    assert wheel.split() == [*plain.split(), switch]
    set_up(project, "make", "chat")
    assert installed(project) == [], "the choice stays"
    (project / "pyproject.toml").write_text("changed\n")
    set_up(project, "make", "chat")
    assert installed(project) == []
    assert len(compiled_with(project)) == 2
    set_up(project, "make", "chat", "GPU=none", "RPC=", "CMAKE_ARGS=")
    assert installed(project)[0].split() == plain.split()


def test_a_gpu_of_another_name_is_refused(project: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as error:
        set_up(project, "make", "chat", "GPU=nvidia")
    assert b"cuda, metal, vulkan, rocm or none" in error.value.stderr


def test_a_wheel_of_others_is_used_where_there_is_one(project: Path, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    set_up(project, "make", "chat", f"WHEELS={tmp_path / 'shop'}")
    assert ["-DLLAVA_BUILD=ON" in wheel for wheel in installed(project)] == [True], "none there"
    (tmp_path / "more").mkdir()
    (tmp_path / "more/llama_cpp_python-1.0-py3-none-any.whl").write_text("bought")
    set_up(project, "make", "chat", f"WHEELS={tmp_path / 'more'}")
    assert installed(project) == ["bought"]
    set_up(project, "make", "chat")
    assert installed(project) == [], "it stays"


@pytest.mark.parametrize("ability", ["", "amx_int8 amx_tile", "avx512_fp16"])
def test_a_build_for_new_processors_is_repaired(
    project: Path, tmp_path: Path, ability: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : sse2 avx2 {ability}\n")
    set_up(project, "scripts/install", "requirements.lock", CPUINFO=str(cpuinfo))
    flags = seen_by(project, "python").get("CXXFLAGS", "").strip()
    assert flags == (f'-include "{project}/scripts/processor.h"' if ability else "")
    installed(project)
    cpuinfo.write_text("flags : sse2\n")
    set_up(project, "scripts/install", "requirements.lock", CPUINFO=str(cpuinfo))
    assert installed(project), "a build for another processor ends at its first instruction"
    assert len(compiled_with(project)) == 2


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
