"""shepherd model pick, and what model info tells of models that are elsewhere."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.catalog.local_models import find_local_model, local_models
from shepherd.cli.options import run_command_line
from shepherd.models import builtin_model
from tests.cli.hub import hub
from tests.cli.program import Program, share_measurements

PUP = builtin_model().read_bytes()


def rows(program: Program, name: str) -> dict[str, str]:
    done = program.run("model", "info", name)
    assert done.returncode == 0, done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


@pytest.fixture(autouse=True)
def _measured(program: Program) -> None:
    share_measurements(program.home)


@pytest.fixture
def alone(program: Program) -> Program:
    """Without a hub: whatever is asked there fails."""
    return replace(program, extra={"HF_ENDPOINT": "http://127.0.0.1:9"})


def test_models_are_picked_without_a_network(alone: Program) -> None:
    done = alone.run("model", "pick", "--json")
    assert done.returncode == 0, done.stderr
    picks: list[dict[str, Any]] = json.loads(done.stdout)
    assert {pick["name"] for pick in picks} == {model.name for model in local_models()}
    for pick in picks:
        model = find_local_model(pick["name"])
        assert model is not None
        assert pick["pull"] == f"{model.repository}:{pick['quant']}"
        assert pick["download"] == model.size(pick["quant"])
        assert pick["licence"]
        assert pick["tool_calls"] is True
        assert pick["writes_per_second"] > 0
        assert pick["suits"] <= pick["fits"]


def test_the_list_is_readable_and_info_tells_the_same(alone: Program) -> None:
    done = alone.run("model", "pick", "--all")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["model", "quant", "download"]
    assert len(lines) == len(local_models())
    assert max(map(len, [head, *lines])) < 130
    assert "of memory are free" in done.stderr
    quants = {line.split()[0]: line.split()[1] for line in lines}
    told, model = rows(alone, "qwen3.5:0.8b"), find_local_model("qwen3.5:0.8b")
    assert model is not None
    assert {told["quantisation"], quants[model.name]} <= {*model.quants}  # each measures a speed
    assert "apache.org" in told["licence"]
    assert "unsloth/Qwen3.5-0.8B-GGUF" in told["from"]


def test_a_header_on_the_hub_tells_what_the_file_tells(program: Program) -> None:
    with hub(
        {"Pup-Q8_0.gguf": PUP, "other-Q4_K_M.gguf": b"GGUF", "bad-Q6_K.gguf": b"?" * 99}
    ) as far:
        online = replace(program, extra={"HF_ENDPOINT": far.url})
        there, here = rows(online, "team/model-GGUF:Q8_0"), rows(online, "pup")
        for key in ("name", "architecture", "size", "context", "fits"):
            assert here[key].endswith(there[key])
        assert there["from"] == "the header of Pup-Q8_0.gguf"
        assert far.ranges
        assert not list(online.home.rglob("*.gguf"))
        for quant in ("Q6_K", "Q4_K_M"):
            broken = online.run("model", "info", f"team/model-GGUF:{quant}")
            assert (broken.returncode, "no header" in broken.stderr) == (1, True)
        missing = online.run("model", "info", "team/model-GGUF:Q2_K")
        assert (missing.returncode, "choose with" in missing.stderr) == (1, True)


def test_a_file_in_the_store_of_ollama_is_described_where_it_is(program: Program) -> None:
    store = program.home / ".ollama/models"
    digest = "sha256:0a1b"
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": digest}]
    manifest = store / "manifests/registry.ollama.ai/library/pup/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    blob = store / "blobs" / digest.replace(":", "-")
    blob.parent.mkdir()
    blob.write_bytes(PUP)
    told = rows(program, "pup:latest")
    assert Path(told["file"]) == blob
    assert told["name"] == "Pup"


def test_a_busy_machine_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for load in (0.0, 999.0):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, load, load))
        with pytest.raises(SystemExit):
            run_command_line(["model", "pick"])
        assert ("Other programs compute now" in capsys.readouterr().err) is (load > 0)
