"""Changing settings files."""

import os
import stat
from pathlib import Path

import pytest

from shepherd.config.edit import set_value, unset_value
from shepherd.config.files import write_private
from shepherd.config.load import show_config, show_value
from shepherd.config.settings import Config, parse_text
from shepherd.errors import ConfigError
from tests.config.places import Places
from tests.config.values import OTHER_VALUES, TABLES

COMMENTED = "# mine\n[server] # here\nport = 1 # one\n\n# two\nhost = 'x'\n"


@pytest.mark.parametrize("key", [k for k in OTHER_VALUES if k not in TABLES])
def test_what_was_set_is_loaded_and_shown(places: Places, key: str) -> None:
    value = OTHER_VALUES[key]
    text = value if isinstance(value, str) else show_value(value)
    set_value(places.user_file, key, parse_text(key, text))
    config = places.load()
    section, name = key.split(".")
    assert config.value(key) == value
    assert f"{name} = {show_value(value)}  # " in show_config(config, [section])


def test_what_is_shown_can_be_loaded_again(places: Places) -> None:
    for key in OTHER_VALUES:
        if key not in TABLES:
            set_value(places.user_file, key, OTHER_VALUES[key])
    config = places.load()
    places.user_file.write_text(show_config(config, list(Config.model_fields)))
    assert places.load() == config


def test_comments_stay(places: Places) -> None:
    places.user_file.write_text(COMMENTED)
    set_value(places.user_file, "server.port", 2)
    assert places.user_file.read_text() == COMMENTED.replace("= 1", "= 2")
    assert unset_value(places.user_file, "server.host") == (True, "")
    assert "# two" in places.user_file.read_text()
    assert unset_value(places.user_file, "server.host") == (False, "")


@pytest.mark.parametrize(("key", "value"), [("server.port", -1), ("server.prot", 1)])
def test_nothing_wrong_is_written(places: Places, key: str, value: object) -> None:
    places.user_file.write_text(COMMENTED)
    with pytest.raises(ConfigError, match=key):
        set_value(places.user_file, key, value)
    assert places.user_file.read_text() == COMMENTED


def test_a_broken_file_is_left_alone(places: Places) -> None:
    places.user_file.write_text("[server\n")
    with pytest.raises(ConfigError, match="can't be changed"):
        set_value(places.user_file, "server.port", 1)
    assert places.user_file.read_text() == "[server\n"


def test_a_link_stays_a_link(places: Places, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "shepherd.toml"
    real.parent.mkdir()
    real.write_text(COMMENTED)
    places.user_file.symlink_to(real)
    set_value(places.user_file, "server.port", 5)
    assert places.user_file.is_symlink()
    assert "port = 5" in real.read_text()


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "new" / "file", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "file").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_private(file, "before")
    with pytest.raises(UnicodeEncodeError):
        write_private(file, "\ud800")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["before"]


def test_a_setting_stays_under_the_name_that_the_file_uses(places: Places) -> None:
    places.user_file.write_text("[llamacpp]\npp = 2\n")
    set_value(places.user_file, "llamacpp.pipeline_parallel", 3)
    assert places.user_file.read_text() == "[llamacpp]\npp = 3\n"
    assert unset_value(places.user_file, "llamacpp.pipeline_parallel") == (True, "")
    assert places.load().llamacpp.pipeline_parallel == 1


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("port = 'x'", "server.port"),
        ("port = 99999999", "server.port"),
        ("host = ''", "server.host"),
    ],
)
def test_a_wrong_value_is_put_right_and_the_others_are_named(
    places: Places, wrong: str, key: str
) -> None:
    others = "keepalive = -1\nprot = 2\n"
    places.user_file.write_text(f"[server]\n{wrong}\n{others}")
    problems = set_value(places.user_file, key, OTHER_VALUES[key])
    assert [line.split(": ")[0] for line in problems.splitlines()] == [
        f"{places.user_file}:{line}" for line in (3, 4)
    ]
    assert set_value(places.user_file, "server.keepalive", 5.0).count("\n") == 0
    assert unset_value(places.user_file, "server.prot") == (True, "")
    assert getattr(places.load().server, key.partition(".")[2]) == OTHER_VALUES[key]


def test_two_names_of_a_setting_become_one(places: Places) -> None:
    places.user_file.write_text("[llamacpp]\npp = 2\npipeline_parallel = 3\n")
    assert set_value(places.user_file, "llamacpp.pipeline_parallel", 4) == ""
    assert places.load().llamacpp.pipeline_parallel == 4


def test_what_stands_in_place_of_a_section_is_left_alone(places: Places) -> None:
    places.user_file.write_text("server = 5\n")
    with pytest.raises(ConfigError, match="server is a section"):
        set_value(places.user_file, "server.port", 1)
    assert unset_value(places.user_file, "server.port")[0] is False
    assert places.user_file.read_text() == "server = 5\n"


def test_an_unknown_key_that_is_not_there_changes_nothing(places: Places) -> None:
    assert unset_value(places.user_file, "server.prot") == (False, "")
    assert not places.user_file.exists()


def test_what_is_no_file_is_neither_read_nor_replaced(places: Places) -> None:
    os.mkfifo(places.user_file)
    with pytest.raises(ConfigError, match="not a regular file"):
        places.load()
    with pytest.raises(ConfigError, match="not a regular file"):
        set_value(places.user_file, "server.port", 1)
    assert stat.S_ISFIFO(places.user_file.stat().st_mode)


def test_the_null_device_is_an_empty_file(places: Places) -> None:
    places.user_file.symlink_to(os.devnull)
    assert places.load().server.port == 8000
    with pytest.raises(ConfigError, match="not a regular file"):
        set_value(places.user_file, "server.port", 1)
