"""An installed package that brings a tool, a type of providers, a command and a route."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from shepherd.cli.batch.oneshot import DENIED
from tests.e2e.terminal import Terminal
from tests.forked import SHEPHERD, ForkedProgram
from tests.patience import PATIENCE
from tests.plugins.conftest import Run

CALL = 'call: weather {"city": "Oslo"}\n---\ntext: So be it.\n'
BROKEN = "import not_installed_anywhere\n"
MODULES = ("tool", "backend", "command", "route", "notation", "adapter")


@contextmanager
def serving(env: dict[str, str], cwd: Path, *arguments: str) -> Generator[tuple[str, list[str]]]:
    """The server's base address, and the lines that it wrote before."""
    kind = () if "--cliserver" in arguments else ("--server",)
    argv = [SHEPHERD, *kind, "--port", "0", "--model", "pup", *arguments]
    process = ForkedProgram(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if match := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield match[0], lines
                break
        else:
            pytest.fail("".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("approve", ["all", "ask", "edits", "auto", "none"])
def test_the_tool_runs_when_it_is_approved_only(approve: str, run: Run) -> None:
    done = run("-e", "hi", "--approve", approve, script=CALL)
    assert done.returncode == (0 if approve == "all" else DENIED)
    assert ("It rains in Oslo." in done.stderr) == (approve == "all")


def test_a_rule_allows_the_tool(run: Run, env: dict[str, str]) -> None:
    settings = Path(env["HOME"]) / ".config" / "shepherd" / "config.toml"
    settings.parent.mkdir(parents=True)
    rule = 'tool = "tool"\npattern = "weather"\ndecision = "allow"\n'
    settings.write_text(f"[[permissions.rules]]\n{rule}")
    assert "It rains in Oslo." in run("-e", "hi", script=CALL).stderr


def test_a_model_with_basic_tools_only_is_not_offered_it() -> None:
    from shepherd.backends.base import ModelInfo
    from shepherd.config.settings import Config
    from shepherd.conversation.toolbox import offered_tools
    from shepherd.models import BUILTIN_TOOLS
    from shepherd.tools.environment import GetDate
    from shepherd.tools.function import ExtensionTool

    tools = [GetDate(), ExtensionTool(GetDate())]
    basic = ModelInfo("pup", "llamacpp", 4096, trained_tools=BUILTIN_TOOLS)
    assert len(offered_tools(tools, Config(), ModelInfo("big", "x", 4096))) == 2
    assert len(offered_tools(tools, Config(), basic)) == 1
    assert len(offered_tools(tools, Config(), None)) == 1


def test_the_type_of_providers_is_one_of_the_types(run: Run) -> None:
    added = run("provider", "add", "mine", "--type", "echo", "--api-key", "abc")
    assert added.returncode == 0, added.stderr
    tested = run("provider", "test", "mine")
    assert tested.returncode == 0, tested.stderr
    assert "context: 8,192 tokens" in tested.stdout
    assert run("--provider", "mine", "-e", "one two").stdout == "abc: one two\n"
    refused = run("provider", "add", "other", "--type", "ecco")
    assert refused.returncode != 0
    assert "did you mean echo" in refused.stderr


class Parrot(BaseHTTPRequestHandler):
    """A vendor's server, which is busy once."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer(200, {"models": ["grey"]})

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(f"{self.headers['X-Parrot-Key']} {sent['model']}")
        if len(self.asked) == 1:
            self._answer(429, {"error": "busy"})
        else:
            self._answer(200, {"text": sent["text"].upper()}, {"tokens": 3})

    def _answer(self, status: int, *lines: object) -> None:
        body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_an_adapter_gets_the_http_client_and_its_retries(run: Run) -> None:
    Parrot.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Parrot)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        added = run("provider", "add", "bird", "--type", "parrot", "--base-url", url)
        assert added.returncode == 0, added.stderr
        assert run("provider", "set", "bird", "api-key", "env:BIRD").returncode == 0
        tested = run("provider", "test", "bird", BIRD="k")
        assert "context: 4,096 tokens" in tested.stdout, tested.stderr
        done = run("--provider", "bird", "-e", "hello you", BIRD="k")
        assert (done.returncode, done.stdout) == (0, "HELLO YOU\n"), done.stderr
        assert Parrot.asked == ["k grey"] * 2
    finally:
        server.shutdown()
        server.server_close()


def test_an_adapter_without_an_address_says_what_is_missing(run: Run) -> None:
    assert run("provider", "add", "bird", "--type", "parrot").returncode == 0
    assert "needs the address of its server" in run("--provider", "bird", "-e", "hi").stderr


CONFIGURED = """
import shepherd

def weather(settings=None):
    @shepherd.tool(name="weather", touches=[])
    def tell(city: str) -> str:
        "Tell the weather."
        return f"{settings} in {city}"
    return tell
"""
UNITS = '[plugins.settings.weather]\nunits = "metric"\n'


def test_a_plugin_has_settings_of_the_user(run: Run, site: Path, env: dict[str, str]) -> None:
    (site / "shepherd_sample" / "tool.py").write_text(CONFIGURED)
    assert "None in Oslo" in run("-e", "hi", "--approve", "all", script=CALL).stderr
    settings = Path(env["HOME"]) / ".config" / "shepherd" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(UNITS)
    done = run("-e", "hi", "--approve", "all", script=CALL)
    assert "{'units': 'metric'} in Oslo" in done.stderr
    settings.write_text(UNITS.replace("weather", "Shepherd-Sample".lower()))
    assert "'metric'} in Oslo" in run("-e", "hi", "--approve", "all", script=CALL).stderr


def test_a_project_gives_a_plugin_no_settings(run: Run, site: Path, tmp_path: Path) -> None:
    (site / "shepherd_sample" / "tool.py").write_text(CONFIGURED)
    (tmp_path / "work" / ".shepherd.toml").write_text(UNITS)
    assert "metric" not in run("-e", "hi", "--approve", "all", script=CALL).stderr


def test_the_slash_command_is_one_of_the_commands(tmp_path: Path, env: dict[str, str]) -> None:
    with Terminal([SHEPHERD], tmp_path, env) as terminal:
        terminal.wait_for("pup")
        terminal.say("/shout hello")
        terminal.wait_for("HELLO")
        terminal.say("/help")
        terminal.wait_for("/shout TEXT")


@pytest.mark.parametrize("keys", ["none", "json"])
def test_the_route_is_under_the_same_guard(keys: str, tmp_path: Path, env: dict[str, str]) -> None:
    with serving(env, tmp_path, "--auth-mode", keys) as (url, _):
        status, body = get(f"{url}/version")
        assert get(f"{url}/health")[0] == 200
    if keys == "json":
        assert (status, "API key" in body) == (401, True)
    else:
        assert (status, json.loads(body)["model"]) == (200, "pup")


def test_the_route_is_on_the_server_of_a_shared_session(
    tmp_path: Path, env: dict[str, str]
) -> None:
    with serving(env, tmp_path, "--cliserver") as (url, _):
        status, body = get(f"{url}/version")
        assert get(f"{url}/session")[0] == 200
    assert (status, json.loads(body)["model"]) == (200, "pup")


def test_doctor_lists_them(run: Run) -> None:
    (check,) = _plugin_checks(run("doctor", "--json").stdout)
    assert check["text"].startswith("shepherd-sample 1.2: ")
    assert check["state"] == "ok"
    for name in (
        "tools weather",
        "backends echo",
        "adapters parrot",
        "commands shout",
        "routes version",
        "formats angles",
        "mcp notes",
    ):
        assert name in check["text"]


@pytest.mark.parametrize(
    ("module", "code"),
    [
        *zip(
            MODULES,
            [BROKEN, "import sys\nsys.exit(3)\n", "1 +\n", "a = 1\n", "", "a = 1\n"],
            strict=True,
        )
    ],
)
def test_doctor_tells_what_is_broken(module: str, code: str, run: Run, site: Path) -> None:
    (site / "shepherd_sample" / f"{module}.py").write_text(code)
    (check,) = _plugin_checks(run("doctor", "--json").stdout)
    assert check["state"] == "note"
    assert "shepherd-sample 1.2" in check["advice"][0]


def _plugin_checks(output: str) -> list[dict[str, str]]:
    return [check for check in json.loads(output)["checks"] if check["name"] == "plugin"]


def test_doctor_tells_what_is_switched_off(run: Run) -> None:
    off = {"SHEPHERD_PLUGINS__DISABLED": "weather"}
    (check,) = _plugin_checks(run("doctor", "--json", **off).stdout)
    assert "tools weather (switched off" in check["text"]


def break_all(site: Path, code: str) -> None:
    for module in MODULES:
        (site / "shepherd_sample" / f"{module}.py").write_text(code)


@pytest.mark.parametrize("code", [BROKEN, "import os, sys\nsys.exit(3)\n"])
def test_a_broken_plugin_is_a_warning(code: str, run: Run, site: Path, env: dict[str, str]) -> None:
    break_all(site, code)
    done = run("-e", "hi", script="text: fine\n")
    assert (done.returncode, done.stdout) == (0, "fine\n")
    assert "weather (shepherd-sample 1.2, shepherd.tools) can't be used" in done.stderr
    with serving(env, site.parent) as (url, lines):
        assert get(f"{url}/version")[0] == 404
        assert get(f"{url}/health")[0] == 200
    assert any("version (shepherd-sample 1.2, shepherd.routes)" in line for line in lines)
    with Terminal([SHEPHERD], site.parent, env, columns=160) as terminal:
        terminal.wait_for(r"shout \(shepherd-sample 1.2")
        terminal.say("/shout hello")
        terminal.wait_for("/help")


def test_a_broken_backend_fails_its_providers_only(run: Run, site: Path) -> None:
    assert run("provider", "add", "mine", "--type", "echo").returncode == 0
    break_all(site, BROKEN)
    done = run("--provider", "mine", "-e", "hi")
    assert done.returncode == 1
    assert "echo (shepherd-sample 1.2, shepherd.backends) can't be used" in done.stderr
    assert run("-e", "hello").returncode == 0


HANGING = "import threading\nthreading.Event().wait()\n"
IMPATIENT = "import shepherd.plugins\nshepherd.plugins.LOAD_SECONDS = 0.5\n"


def test_a_plugin_that_hangs_is_a_warning(run: Run, site: Path) -> None:
    assert run("provider", "add", "mine", "--type", "echo").returncode == 0
    break_all(site, HANGING)
    (site / "sitecustomize.py").write_text(IMPATIENT)
    done = run("-e", "hi", script="text: fine\n")
    assert (done.returncode, done.stdout) == (0, "fine\n")
    assert "weather (shepherd-sample 1.2, shepherd.tools) can't be used: its import" in done.stderr
    failed = run("--provider", "mine", "-e", "hi")
    assert failed.returncode == 1
    assert "echo (shepherd-sample 1.2, shepherd.backends) can't be used: its" in failed.stderr


def test_a_provider_outlives_its_plugin(run: Run, site: Path) -> None:
    assert run("provider", "add", "mine", "--type", "echo", "--model", "x").returncode == 0
    shutil.rmtree(site)
    warning = "Provider mine: the type echo needs a plugin that is not installed"
    done = run("-e", "hi", script="text: fine\n")
    assert (done.returncode, done.stdout) == (0, "fine\n")
    assert warning in done.stderr
    assert run("provider", "add", "other", "--type", "openai").returncode == 0
    listed = run("provider", "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["mine", "other"]
    assert warning in listed.stderr
    advice = [check["advice"] for check in json.loads(run("doctor", "--json").stdout)["checks"]]
    assert sum(warning in sentence for sentences in advice for sentence in sentences) == 1
    failed = run("--provider", "mine", "-e", "hi")
    assert (failed.returncode, warning in failed.stderr) == (1, True)
    assert run("provider", "remove", "mine").returncode == 0


@pytest.mark.parametrize("name", ["weather", "shepherd-sample", "Shepherd_Sample"])
def test_a_plugin_is_switched_off(name: str, run: Run) -> None:
    off = {"SHEPHERD_PLUGINS__DISABLED": name}
    done = run("-e", "hi", "--approve", "all", script=CALL, **off)
    assert "unknown tool: weather" in done.stderr


def test_a_project_may_switch_one_off(run: Run, tmp_path: Path) -> None:
    (tmp_path / "work" / ".shepherd.toml").write_text('[plugins]\ndisabled = ["weather"]\n')
    assert "unknown tool: weather" in run("-e", "hi", "--approve", "all", script=CALL).stderr


LIST = "from shepherd.plugins import installed_plugins; print(installed_plugins())"


@pytest.mark.parametrize("path", ["", ".", "SITE"])
def test_the_working_directory_brings_no_plugins(
    path: str, site: Path, env: dict[str, str]
) -> None:
    """A cloned repository could hold a package."""
    done = subprocess.run(
        [sys.executable, "-c", LIST],
        cwd=site,
        env=env | {"PYTHONPATH": path.replace("SITE", str(site))},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "[]\n"


TAKEN = """
import shepherd

class Make:
    def __call__(self):
        return [shepherd.tool(name=name, description="x")(lambda: "y") for name in {names}]

weather = Make()
"""


@pytest.mark.parametrize("name", ["read_file", "search_memory", "ask_fast", "environment", "A b"])
def test_a_name_that_is_taken_is_a_warning(name: str, run: Run, site: Path) -> None:
    (site / "shepherd_sample" / "tool.py").write_text(TAKEN.format(names=[name]))
    done = run("-e", "hi", script="text: fine\n")
    assert (done.returncode, done.stdout) == (0, "fine\n")
    assert "can't be used" in done.stderr


@pytest.mark.parametrize(
    ("file", "text"),
    [("entry_points.txt", "[shepherd.tools\nweather"), ("METADATA", ""), ("METADATA", "\0")],
)
def test_broken_metadata_does_no_harm(file: str, text: str, run: Run, site: Path) -> None:
    (site / "shepherd_sample-1.2.dist-info" / file).write_text(text)
    done = run("-e", "hi", script="text: fine\n")
    assert (done.returncode, done.stdout) == (0, "fine\n")
