"""A user's models.toml that is broken stops with the place and what is wrong there."""

from pathlib import Path

import pytest

from shepherd.config.modeldb import model_facts
from shepherd.errors import ConfigError

GOOD = "[[model]]\nmatch = ['m']\ncontext = 8192\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[model", "not valid TOML"),
        (GOOD + GOOD.replace("[[model]]\n", ""), "not valid TOML"),
        ("a = " + "[" * 5000, "not valid TOML"),
        ("[model]\nmatch = ['m']", "[[model]] tables and nothing else"),
        ("model = 3", "[[model]] tables and nothing else"),
        ("[[models]]\nmatch = ['m']", "[[model]] tables and nothing else"),
        (GOOD + "[other]\n", "[[model]] tables and nothing else"),
        ("model = [1]", "must be a table"),
        ("[[model]]\ncontext = 8192", "match is missing"),
        ("[[model]]\nmatch = []", "match must be"),
        ("[[model]]\nmatch = 'm'", "match must be"),
        (GOOD + "outptu = 1", ":4: unknown key outptu; did you mean output?"),
        (GOOD + "[[model]]\nmatch = ['n']\ncontext = 'much'", ":6: context must be"),
        (GOOD.replace("8192", "255"), "context must be"),
        (GOOD + "output = 0", "output must be"),
        (GOOD + "vision = 7", "vision must be"),
        (GOOD + "limit_parameter = 'n'", "limit_parameter must be"),
    ],
)
def test_a_broken_file_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        model_facts("m", file)
    assert str(raised.value).startswith(str(file))
    assert problem in str(raised.value)


def test_what_the_user_says_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("[[model]]\nmatch = ['gpt-5*']\ncontext = 777\n[[model]]\nmatch = ['*']\n")
    facts = model_facts("gpt-5-mini", file)
    assert (facts.context, facts.context_source, facts.vision) == (777, str(file), True)
