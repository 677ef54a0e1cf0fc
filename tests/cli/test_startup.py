"""What is loaded before anything is shown."""

import importlib
import re
import subprocess
import sys
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.cli.options import run_command_line
from shepherd.cli.request import plain_question
from shepherd.cli.terminal.errors import UsageError
from tests.examples import examples

HEAVY = {
    "fastapi",
    "huggingface_hub",
    "httpx",
    "jinja2",
    "keyring",
    "httpx2",
    "llama_cpp",
    "llguidance",
    "markdown_it",
    "mcp",
    "mcp_types",
    "numpy",
    "prompt_toolkit",
    "pydantic",
    "rich",
    "tomlkit",
    "typer",
    "uvicorn",
}
PROBE = """
import sys
sys.argv = ["shepherd", *{arguments!r}]
try:
    from shepherd.cli.app import main
    main()
except SystemExit:
    pass
{more}
print(*sorted(sys.modules))
"""
AT_CALLS = {
    "shepherd.tools.search.engines",
    "shepherd.tools.shell.accesses",
    "shepherd.tools.shell.confined",
    "shepherd.tools.web.exchange",
}
"""What the first call of a tool imports."""

FIRST_PROMPT = """
import os
from pathlib import Path
import shepherd.cli.repl.app
from shepherd.cli.launch import load_settings
from shepherd.config.paths import Paths
from shepherd.config.providers.book import ProviderBook
from shepherd.conversation.build import backend_opener, build_conversation
from shepherd.conversation.session_start import SessionStart
config = load_settings(Path.cwd(), os.environ, {})
providers = ProviderBook(Paths.from_env(os.environ), os.environ)
build_conversation(
    config, os.environ, Path.cwd(), SessionStart(), backend_opener(providers), providers
)
"""


def run(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def loaded(*arguments: str, more: str = "") -> set[str]:
    """The modules that a run with these arguments and then `more` has loaded."""
    return run(PROBE.format(arguments=arguments, more=more))


def packages(modules: set[str]) -> set[str]:
    return {name for name in modules if "." not in name}


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_needs_nothing_of_the_standard_library(option: str) -> None:
    bare = run("import sys; print(*sys.modules)")

    assert packages(loaded(option) - bare) == {"shepherd"}


@pytest.mark.parametrize("arguments", [("--help",), ("model", "--help")])
def test_help_loads_no_frontend(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments) & HEAVY <= {"markdown_it", "typer", "rich", "pydantic"}


def test_a_command_loads_no_other_command() -> None:
    commands = {
        name for name in loaded("doctor", "--help") if name.startswith("shepherd.cli.commands.")
    }

    assert (
        commands & {f"shepherd.cli.commands.{name}" for name in ("apikey", "ctl", "sessions")}
        == set()
    )


def test_the_first_prompt_loads_what_it_shows() -> None:
    modules = loaded("--version", more=FIRST_PROMPT)

    assert modules & HEAVY <= {"prompt_toolkit", "rich"}
    assert modules & {*AT_CALLS, "shepherd.backends.llamacpp"} == set()


def test_a_question_loads_the_model_and_no_terminal() -> None:
    modules = loaded("-e", "hello", "--set", "sampling.temperature=0.0")

    assert modules & HEAVY <= {"jinja2", "llguidance"}
    assert modules & {*AT_CALLS, "shepherd.cli.options", "shepherd.cli.repl"} == set()
    assert "shepherd.backends.llamacpp" in modules


def test_the_search_for_plugins_of_pydantic_can_be_left_out() -> None:
    """This module of pydantic must exist, or the start would not be shorter."""
    assert callable(importlib.import_module("pydantic.plugin._loader").get_plugins)
    assert "pydantic" in loaded("-e", "hello", "--set", "terminal.prices=['model 1 2']")


QUESTIONS = st.lists(
    st.sampled_from(["-e", "--execute", "--set", "--json", "hello", "-x", "", "sampling.seed=3"]),
    max_size=6,
)


@settings(max_examples=examples(400))
@given(QUESTIONS)
@example(["-e", "hello"])
@example(["-e", "hello", "--set", "sampling.seed=3", "--set", "model.tools=false"])
@example(["--set", "sampling.seed=x", "-e", "hello"])
def test_a_plain_question_means_the_same_as_with_all_options(arguments: list[str]) -> None:
    try:
        request = plain_question(arguments)
    except UsageError as error:
        with pytest.raises(UsageError, match=re.escape(str(error))):
            run_command_line(arguments)
        return
    if request is None:
        return
    with patch("shepherd.cli.launch.launch", return_value=0) as launch, pytest.raises(SystemExit):
        run_command_line(arguments)
    launch.assert_called_once_with(request)
