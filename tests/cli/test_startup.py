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
print(*sorted(name for name in sys.modules if "." not in name))
"""


def run(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def loaded(*arguments: str, more: str = "") -> set[str]:
    return run(PROBE.format(arguments=arguments, more=more))


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_needs_nothing_of_the_standard_library(option: str) -> None:
    bare = run("import sys; print(*(name for name in sys.modules if '.' not in name))")

    assert loaded(option) - bare == {"shepherd"}


@pytest.mark.parametrize("arguments", [("--help",), ("model", "--help")])
def test_help_loads_no_frontend(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments) & HEAVY <= {"typer", "rich", "pydantic"}


def test_a_bare_start_loads_what_the_prompt_needs() -> None:
    more = "import shepherd.cli.launch, shepherd.cli.repl.app"
    assert loaded("--version", more=more) & HEAVY <= {"prompt_toolkit", "rich", "pydantic"}
