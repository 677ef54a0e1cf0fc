"""The documented settings are the real ones, the examples load, the unit starts what exists."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest

from shepherd.config.load import load_config
from shepherd.config.sections import SamplingSection
from shepherd.config.settings import Config, all_fields
from shepherd.sampling import DEFAULT_SAMPLING
from tests.config.places import Places

CONFIG = Path(__file__).parents[2] / "config"


def test_the_documented_settings_are_valid_and_the_defaults(places: Places) -> None:
    text = (CONFIG / "config.toml").read_text()
    places.user_file.write_text(re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE))
    config = places.load(env={"XDG_DATA_HOME": "~/.local/share"})
    given = tomllib.loads(places.user_file.read_text())
    assert [f"{s}.{key}" for s, values in given.items() for key in values] == [*all_fields()]
    model = config.model.model_copy(update={"system_message": None})
    assert config.model_copy(update={"model": model, "sampling": SamplingSection()}) == Config()
    sampling = config.sampling.to_sampling()
    assert sampling.seed == 1
    assert sampling.over(DEFAULT_SAMPLING).temperature == DEFAULT_SAMPLING.temperature


@pytest.mark.parametrize("path", sorted((CONFIG / "examples").glob("*.toml")), ids=lambda p: p.stem)
def test_examples_load(places: Places, path: Path) -> None:
    target = places.project_file if path.stem == "project" else places.user_file
    target.write_text(path.read_text())
    config = load_config(places.project, {"HOME": str(places.home)})
    assert config.warnings == ()
    assert config != Config()


def test_the_unit_serves_on_loopback_and_on_a_socket() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string((CONFIG / "systemd" / "shepherd.service").read_text())
    _, *options = unit["Service"]["ExecStart"].split()
    assert options == ["--server", "--port", "8000", "--socket", "%t/shepherd/socket"]
    assert unit["Service"]["IPAddressDeny"] == "any"
    assert (Config().server.host, Config().server.port) == ("127.0.0.1", 8000)
