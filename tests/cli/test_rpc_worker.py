"""`shepherd rpc-worker`: the addresses it refuses, and what its sandbox holds."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shepherd.backends.llamacpp.rpc.serve import Service
from shepherd.backends.llamacpp.rpc.workers import has_rpc
from shepherd.cli.commands import rpc_worker
from shepherd.cli.options import app
from shepherd.errors import ConfigError, ShepherdError, UsageError


def refusal(*options: str) -> ShepherdError:
    result = CliRunner().invoke(app, ["rpc-worker", *options])
    assert isinstance(result.exception, ShepherdError)
    return result.exception


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.20"])
def test_an_address_for_others_needs_a_flag(host: str) -> None:
    error = refusal("--host", host)
    assert isinstance(error, UsageError)
    assert "--trusted-network" in str(error)


@pytest.mark.parametrize("host", ["::1", "worker.lan", ""])
def test_only_ipv4_addresses_are_served(host: str) -> None:
    assert "IPv4" in str(refusal("--host", host, "--trusted-network"))


def test_a_build_without_rpc_names_the_command_that_builds_it() -> None:
    if has_rpc():
        pytest.skip("this llama.cpp is built with RPC")
    error = refusal()
    assert isinstance(error, ConfigError)
    assert "make chat RPC=1" in str(error)


def test_workers_are_named_one_by_one_or_with_commas() -> None:
    setting = ("config", "get", "llamacpp.rpc_servers")
    shown = CliRunner().invoke(app, ["--rpc", "a:1,b:2", "--rpc", "c:3", *setting]).stdout
    assert shown.startswith('["a:1", "b:2", "c:3"]')
    assert CliRunner().invoke(app, setting).stdout.startswith("[]")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, from which Python imports, too."""
    monkeypatch.chdir(tmp_path)
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))


def test_the_sandbox_holds_code_and_the_cache_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    root = project / "cache"
    program, profile = rpc_worker.boxed_program(Service("127.0.0.1", 1), root)
    assert project.resolve() not in profile.readable
    assert Path(rpc_worker.__file__).parents[2].resolve() in profile.readable
    assert (profile.read_only, profile.writable, profile.root) == (True, (), root)
    assert "OPENAI_API_KEY" not in (program.environment or os.environ)
    _, kept = rpc_worker.boxed_program(Service("127.0.0.1", 1, cache=str(root)), root)
    assert not kept.read_only
