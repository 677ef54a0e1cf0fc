"""A project's file can tighten, never loosen."""

import json
from itertools import product

import pytest

from shepherd.config.load import show_value
from shepherd.config.settings import all_fields
from shepherd.config.trust import ADDITIVE, STRICTNESS, UNRESTRICTED
from tests.config.places import Places
from tests.config.values import OTHER_VALUES

TIGHTENING = {
    "mcp.enabled": False,
    "memory.enabled": False,
    "knowledge.enabled": False,
    "knowledge.skills": False,
    "model.tools": False,
    "tools.allow_private_hosts": False,
    "tools.ask_providers": False,
    "permissions.approve": "none",
    "tools.sandbox": "required",
    "model.name": "some-model",
}
REFUSED = [
    key
    for key in all_fields()
    if key not in UNRESTRICTED | ADDITIVE
    and not key.startswith("sampling.")
    and key not in TIGHTENING
]


def write(places: Places, key: str, value: object) -> None:
    section, name = key.split(".")
    places.project_file.write_text(f"# ours\n[{section}]\n{name} = {show_value(value)}\n")


@pytest.mark.parametrize("key", sorted({*all_fields()} - {*REFUSED, *TIGHTENING}))
def test_what_changes_answers_and_looks_is_taken(places: Places, key: str) -> None:
    write(places, key, OTHER_VALUES[key])
    config = places.load()
    assert (config.value(key), config.warnings) == (OTHER_VALUES[key], ())


@pytest.mark.parametrize("key", REFUSED)
def test_all_else_is_ignored_with_a_warning_that_names_the_line(places: Places, key: str) -> None:
    value = [{"tool": "shell", "pattern": "*", "decision": "allow"}]
    before = places.load()
    if key == "permissions.rules":
        rule = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value[0].items())
        places.project_file.write_text(f"# ours\n[permissions]\nrules = [{{ {rule} }}]\n")
    else:
        write(places, key, OTHER_VALUES[key])
    config = places.load()
    assert config == before
    assert config.project_rules == ()
    (warning,) = config.warnings
    assert warning.startswith(f"{places.project_file}:3: {key} ignored: ")


@pytest.mark.parametrize(("key", "value"), TIGHTENING.items())
def test_tightening_is_taken(places: Places, key: str, value: object) -> None:
    write(places, key, value)
    assert places.load().value(key) == value


@pytest.mark.parametrize(
    ("key", "user", "project"),
    [(key, *pair) for key, values in STRICTNESS.items() for pair in product(values, repeat=2)],
)
def test_modes_only_get_stricter(places: Places, key: str, user: str, project: str) -> None:
    section, _, name = key.partition(".")
    places.user_file.write_text(f'[{section}]\n{name} = "{user}"\n')
    write(places, key, project)
    stricter = max(user, project, key=STRICTNESS[key].index)
    assert places.load().value(key) == stricter


def test_a_project_can_not_switch_the_sandbox_off(places: Places) -> None:
    write(places, "tools.sandbox", "off")
    config = places.load()
    assert config.tools.sandbox == "auto"
    (warning,) = config.warnings
    assert 'may not loosen it from "auto"' in warning


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools.allow_private_hosts", True),
        ("model.tools", True),
        ("model.name", "/tmp/evil.gguf"),
        ("model.name", "./evil.gguf"),
        ("model.name", "a/../../evil.gguf"),
        ("model.name", "~/evil.gguf"),
        ("model.name", "script:evil"),
        ("model.name", "a/./evil"),
    ],
)
def test_loosening_is_ignored(places: Places, key: str, value: object) -> None:
    places.user_file.write_text("[model]\ntools = false\n")
    before = places.load()
    write(places, key, value)
    config = places.load()
    assert config == before
    assert len(config.warnings) == 1


def test_a_project_can_not_switch_tools_on_again(places: Places) -> None:
    places.user_file.write_text('[tools]\ndisabled = ["http_get"]\n')
    write(places, "tools.disabled", ["grep"])
    assert places.load().tools.disabled == ["http_get", "grep"]


def test_a_projects_rules_are_kept_apart(places: Places) -> None:
    places.user_file.write_text(
        '[[permissions.rules]]\ntool = "read"\npattern = "a"\ndecision = "allow"\n'
    )
    places.project_file.write_text(
        '[[permissions.rules]]\ntool = "read"\npattern = "b"\ndecision = "deny"\n'
    )
    config = places.load()
    assert [rule.pattern for rule in config.permissions.rules] == ["a"]
    assert [rule.pattern for rule in config.project_rules] == ["b"]


def test_a_project_can_not_switch_undo_off(places: Places) -> None:
    """Without saved sessions, no file is kept before it is changed."""
    for key in ("undo.enabled", "terminal.save_sessions"):
        write(places, key, False)
        assert places.load().value(key) is True
