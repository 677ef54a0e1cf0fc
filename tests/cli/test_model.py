"""shepherd model: what is there, and getting more from a hub over real HTTP."""

import random
import shutil
import signal
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.catalog.hub_files import HubFile, ModelSelection, choose_files, parse_selection
from shepherd.catalog.local_models import local_models
from shepherd.errors import ModelLoadError
from shepherd.models import builtin_model
from tests.cli.hub import Hub, hub
from tests.cli.program import Program, share_measurements
from tests.patience import PATIENCE

DATA = random.Random(1).randbytes(300_000)
FILES = {
    "README.md": b"# Model",
    "model-Q8_0.gguf": DATA[:200],
    "model-Q4_K_M.gguf": DATA,
    "mmproj-model-f16.gguf": DATA[:100],
    "big/model-BF16-00001-of-00002.gguf": DATA[:1000],
    "big/model-BF16-00002-of-00002.gguf": DATA[1000:3000],
}


@pytest.fixture(autouse=True)
def _measured(program: Program) -> None:
    share_measurements(program.home)


@pytest.fixture
def server() -> Generator[Hub]:
    with hub(FILES) as running:
        yield running


@pytest.fixture
def puller(program: Program, server: Hub) -> Program:
    return replace(program, extra={"HF_ENDPOINT": server.url})


def models(program: Program) -> Path:
    return program.home / ".local/share/shepherd/models"


def test_list_and_info_tell_what_a_file_is(program: Program) -> None:
    models(program).mkdir(parents=True)
    shutil.copy(builtin_model(), models(program) / "copy.gguf")
    (models(program) / "broken.gguf").write_bytes(b"GGUF....")
    pup, broken, copy = program.run("model", "list").stdout.splitlines()
    assert pup.startswith("pup ")
    assert pup.split()[1:] == copy.split()[1:]
    assert "damaged" in broken
    shown = program.run("model", "info", "copy").stdout
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert rows["file"].endswith("/copy.gguf")
    assert rows["size"] == f"{builtin_model().stat().st_size / 2**20:.0f} MiB"
    assert {"architecture", "context", "template", "memory"} <= set(rows)
    missing = program.run("model", "info", "nothing")
    assert (missing.returncode, "No model 'nothing'" in missing.stderr) == (1, True)


def test_a_sensible_model_is_pulled_and_pulled_once(puller: Program, server: Hub) -> None:
    done = puller.run("model", "pull", "team/model-GGUF")
    assert done.returncode == 0, done.stderr
    path = models(puller) / "model-GGUF" / "model-Q4_K_M.gguf"
    assert done.stdout == f"{path}\n"
    assert "0.0 GiB" not in done.stderr  # a small model has a size, too
    assert path.read_bytes() == DATA
    assert "is there already" in puller.run("model", "pull", "team/model-GGUF:q4_k_m").stderr
    assert path.with_name("mmproj-model-f16.gguf").read_bytes() == DATA[:100]


def test_the_licence_is_shown_and_kept(puller: Program, server: Hub) -> None:
    shown = puller.run("model", "pull", "team/model-GGUF:Q8_0").stderr
    terms = f"apache-2.0 ({server.url}/team/model-GGUF)"
    assert f"The licence of the model: {terms}" in shown
    kept = models(puller) / "model-GGUF" / "LICENSE"
    assert terms in kept.read_text()
    server.files = {**FILES, "LICENSE": b"You may."}
    assert puller.run("model", "pull", "team/model-GGUF:Q8_0").returncode == 0
    assert kept.read_bytes() == b"You may."


def test_a_projector_comes_only_to_who_wants_to_see(puller: Program) -> None:
    done = puller.run("--set", "llamacpp.projector=none", "model", "pull", "team/model-GGUF")
    assert done.returncode == 0, done.stderr
    assert not list(models(puller).rglob("mmproj*"))


def test_a_pulled_model_is_the_default_if_the_user_says_so(puller: Program) -> None:
    def default() -> str:
        return puller.run("config", "get", "model.name").stdout.strip()

    before = default()
    puller.run("model", "pull", "team/model-GGUF:Q8_0")  # nobody is there to be asked
    assert default() == before
    done = puller.run("model", "pull", "team/model-GGUF:Q8_0", "--use")
    assert "from now on" in done.stderr
    assert default() == "model-GGUF/model-Q8_0.gguf"


def test_a_name_of_the_table_is_enough(program: Program) -> None:
    """The quantisation is the best one for this machine, or the one that is named."""
    model = local_models()[0]
    files = {f"model-{quant}.gguf": quant.encode() for quant in model.quants}
    with hub(files, model.repository) as server:
        puller = replace(program, extra={"HF_ENDPOINT": server.url})
        done = puller.run("model", "pull", model.name)
        assert done.returncode == 0, done.stderr
        (best,) = models(puller).rglob("*.gguf")
        assert best.name in files
        quant = next(quant for quant in model.quants if quant != best.read_text())
        named = puller.run("model", "pull", f"{model.name}:{quant}")
        assert named.stdout.endswith(f"model-{quant}.gguf\n")


def test_all_parts_are_pulled(puller: Program) -> None:
    done = puller.run("model", "pull", "team/model-GGUF:BF16")
    assert done.returncode == 0, done.stderr
    parts = sorted((models(puller) / "model-GGUF").glob("model*.gguf"))
    assert [part.read_bytes() for part in parts] == [DATA[:1000], DATA[1000:3000]]


def test_control_c_says_that_the_download_goes_on(program: Program) -> None:
    with hub({"model.gguf": DATA}) as server:
        server.cut, server.stalls = len(DATA) - 1000, True
        puller = replace(program, extra={"HF_ENDPOINT": server.url})
        with puller.start("model", "pull", "team/model-GGUF") as process:
            wait_until(lambda: any(size(part) for part in models(puller).rglob("*.part")))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=3 * PATIENCE)
        server.go_on.set()
        assert process.returncode == 130
        assert out == ""
        first, *_, last = err.splitlines()
        assert first.startswith("team/model-GGUF: model.gguf")
        assert last == "Stopped; the same command goes on from here."
        server.stalls = False
        done = puller.run("model", "pull", "team/model-GGUF")
        assert done.returncode == 0, done.stderr
        assert (models(puller) / "model-GGUF" / "model.gguf").read_bytes() == DATA
        assert server.ranges
        kept = {path.name for path in (models(puller) / "model-GGUF").iterdir()}
        assert kept == {"LICENSE", "model.gguf"}


def size(path: Path) -> int:
    """The size of a file, 0 if it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def wait_until(done: Callable[[], bool]) -> None:
    deadline = monotonic() + 3 * PATIENCE
    while not done():
        assert monotonic() < deadline
        sleep(0.02)


def test_a_hub_that_is_gone(program: Program) -> None:
    gone = replace(program, extra={"HF_ENDPOINT": "http://127.0.0.1:9"})
    done = gone.run("model", "pull", "team/model-GGUF")
    assert done.returncode == 1
    assert "can't be reached" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a/b", ModelSelection("a/b")),
        ("a/b:Q8_0", ModelSelection("a/b", quant="Q8_0")),
        ("a/b/c/d.gguf", ModelSelection("a/b", "c/d.gguf")),
        ("https://huggingface.co/a/b/blob/main/d.gguf", ModelSelection("a/b", "d.gguf")),
        *(
            (f"{model.name}{more}", ModelSelection(model.repository, quant=more[1:]))
            for model in local_models()[:3]
            for more in ("", ":Q6_K")
        ),
    ],
)
def test_names_as_users_write_them(text: str, wanted: ModelSelection) -> None:
    assert parse_selection(text) == wanted


@given(st.permutations(sorted(FILES)))
def test_the_choice_does_not_depend_on_the_order(names: list[str]) -> None:
    files = [HubFile(name) for name in names]
    assert [f.name for f in choose_files(files, ModelSelection("a/b"))] == ["model-Q4_K_M.gguf"]
    parts = choose_files(files, ModelSelection("a/b", "model-BF16-00001-of-00002.gguf"))
    assert [f.name for f in parts] == sorted(n for n in names if n.startswith("big/"))
    with pytest.raises(ModelLoadError, match="choose with"):
        choose_files([f for f in files if "Q4" not in f.name and "Q8" not in f.name]
                     + [HubFile("other-F16.gguf")], ModelSelection("a/b"))  # fmt: skip
