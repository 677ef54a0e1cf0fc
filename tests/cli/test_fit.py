"""What fits into this machine, before a model is loaded, and what a loaded one does."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native import fitting
from shepherd.backends.llamacpp.native.fitting import RAM_RESERVE
from shepherd.cli.commands.doctor import State, check_all
from shepherd.cli.commands.models.fit import show_plan
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import Ephemeral, ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import ModelLoadError, UsageError
from shepherd.models import builtin_model
from tests.backends.llamacpp.support import settings
from tests.cli.program import Program

MIB = 1024**2


def plan(program: Program, *options: str) -> dict[str, Any]:
    done = program.run(*options, "--fit", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plan_is_shown_and_nothing_is_loaded_or_written(program: Program) -> None:
    done = program.run("--fit")
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (done.returncode, rows["context"], rows["result"]) == (
        0,
        "8,192 of 8,192 tokens",
        "It fits.",
    )
    assert re.match(r"[\d,]+ MiB \(weights \d+ MiB, cache \d+ MiB, buffers", rows["memory"])
    assert list(program.home.iterdir()) == []


def test_the_numbers_follow_the_settings(program: Program) -> None:
    whole, half = plan(program), plan(program, "--context-size", "4096")
    assert whole["model"] == str(builtin_model())
    assert half["memory"]["cache"]["ram"] * 2 == whole["memory"]["cache"]["ram"]
    assert half["memory"]["weights"] == whole["memory"]["weights"]
    both = ("llamacpp.cache_type_k=q8_0", "llamacpp.cache_type_v=q8_0")
    small = plan(program, *(part for setting in both for part in ("--set", setting)))
    assert (small["cache_types"], whole["cache_types"]) == (["q8_0"] * 2, ["f16"] * 2)
    assert small["memory"]["cache"]["ram"] * 32 == whole["memory"]["cache"]["ram"] * 17
    assert whole["fits"]


def test_a_model_elsewhere_has_no_plan() -> None:
    provider = make_provider("near", {"type": "ollama", "model": "m"})
    book = ProviderBook.from_env({"HOME": "/nonexistent"}, Ephemeral(provider, ""))
    config = Config.model_validate({"model": {"provider": "near"}})
    with pytest.raises(UsageError, match="near does not load its model"):
        show_plan(config, book, as_json=True)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with little memory."""
    monkeypatch.setattr(fitting, "available_memory", lambda: RAM_RESERVE + 64 * MIB)


@pytest.mark.usefixtures("small")
def test_a_context_that_does_not_fit_is_told_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It loaded before, as doctor said, until the system killed the process."""
    told = r"A context of 16,000,000 tokens does not fit: .*; [\d,]+ tokens fit \(llamacpp"
    asked = {"llamacpp.context_size": 16_000_000}
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    (check,) = [c for c in check_all(tmp_path, env, asked) if c.name == "model"]
    assert check.state is State.BROKEN
    assert re.match(told, check.text)
    config = Config.model_validate({"llamacpp": {"context_size": 16_000_000}})
    assert show_plan(config, ProviderBook.from_env(env), as_json=False) == 1
    assert re.search(told, capsys.readouterr().out)
    with pytest.raises(ModelLoadError, match=told):
        Engine.load(
            builtin_model(),
            settings(context_size=16_000_000),
            Concurrency(1),
            lambda job, update: None,
        )


def test_doctor_loads_a_model_and_tells_how_fast_it_is(program: Program) -> None:
    done = program.run("doctor", "--model", "pup", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    speed = r"loaded in \d+\.\d s; \d+ layers on \w+; reads [\d,]+ and writes [\d,.]+ tokens/s"
    assert re.fullmatch(speed, checks["run"]["text"])
    missing = program.run("doctor", "--model", "nowhere", "--json")
    assert missing.returncode == 1
    assert "run" not in {check["name"] for check in json.loads(missing.stdout)["checks"]}
