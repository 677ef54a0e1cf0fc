"""What is loaded before anything is shown."""

import subprocess
import sys

import pytest

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
FIRST_PROMPT = """
import os
from pathlib import Path
import shepherd.cli.repl.app
from shepherd.cli.request import load_settings
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.conversation.build import backend_opener, build_conversation
from shepherd.conversation.session_start import SessionStart
config = load_settings(Path.cwd(), os.environ, {})
providers = ProviderBook(Paths.from_env(os.environ), os.environ)
build_conversation(
    config, os.environ, Path.cwd(), SessionStart(), backend_opener(providers), providers
)
"""


def loaded(*arguments: str, more: str = "") -> set[str]:
    """The modules that a run with these arguments and then `more` has loaded."""
    code = PROBE.format(arguments=arguments, more=more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_loads_no_library(option: str) -> None:
    assert loaded(option) & HEAVY == set()


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

    assert modules & HEAVY <= {"prompt_toolkit", "pydantic", "rich"}
    assert "shepherd.backends.llamacpp" not in modules


def test_a_question_loads_the_model_and_no_terminal() -> None:
    modules = loaded("-e", "hello", "--set", "sampling.temperature=0.0")

    assert modules & HEAVY <= {"jinja2", "llguidance", "pydantic", "rich", "typer"}
    assert "shepherd.cli.repl" not in modules
    assert "shepherd.backends.llamacpp" in modules
