"""shepherd config, sessions, apikey."""

import stat
import tomllib
from dataclasses import replace

from shepherd.config.settings import Config
from tests.cli.program import Program


def test_config_set_get_show_unset(program: Program) -> None:
    assert program.run("config", "set", "server.port", "8123").returncode == 0
    file = program.config / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tomllib.loads(file.read_text()) == {"server": {"port": 8123}}
    assert program.run("config", "get", "server.port").stdout == "8123\n"
    shown = program.run("--temperature", "0.5", "config", "show").stdout
    assert "port = 8123  # ~/.config/shepherd/config.toml:2\n" in shown
    assert "temperature = 0.5  # command line\n" in shown
    assert set(tomllib.loads(shown)) == set(Config.model_fields)
    assert program.run("config", "show", "model").stdout.startswith("[model]\n")
    program.run("config", "unset", "server.port")
    assert program.run("config", "get", "server.port").stdout == "8000\n"


def test_config_set_refuses_what_is_wrong(program: Program) -> None:
    done = program.run("config", "set", "server.port", "many")
    assert done.returncode == 2
    assert "server.port must be a whole number" in done.stderr
    assert not (program.config / "config.toml").exists()


def test_config_set_repairs_a_file(program: Program) -> None:
    program.config.mkdir(parents=True)
    file = program.config / "config.toml"
    file.write_text("[server]\nport = 'x'\nprot = 1\n")
    done = program.run("config", "set", "server.port", "8123")
    assert done.returncode == 0
    assert "other problems" in done.stderr
    assert "unknown setting server.prot" in done.stderr
    done = program.run("config", "unset", "server.prot")
    assert done.stderr == f"server.prot is no longer set in {file}.\n"
    assert file.read_text() == "[server]\nport = 8123\n"


def test_each_change_is_confirmed(program: Program) -> None:
    file = program.config / "config.toml"
    set_, unset = ("config", "set"), ("config", "unset")
    assert program.run(*set_, "server.port", "1").stderr == f"server.port is set in {file}.\n"
    said = program.run(*unset, "server.port").stderr
    assert said == f"server.port is no longer set in {file}.\n"
    assert program.run(*unset, "server.port").stderr == f"server.port is not set in {file}.\n"
    program.run("provider", "add", "x", "--type", "openai", "--model", "m")
    said = program.run("provider", "set", "x", "context-size", "5000").stderr
    assert said == "x: context-size is changed.\n"


def test_negative_numbers_are_values(program: Program) -> None:
    for value in ("-1.5", "-2", "-1e-1"):
        key = "sampling.penalty_present"
        assert program.run("config", "set", key, value).returncode == 0
        assert float(program.run("config", "get", key).stdout) == float(value)
    assert program.run("config", "set", "--help").returncode == 0
    assert "No such option" in program.run("config", "set", "a.b", "--hlep").stderr
    program.run("provider", "add", "x", "--type", "openai", "--model", "m")
    done = program.run("provider", "set", "x", "priority", "-1")
    assert done.stderr == "shepherd: x.priority must be a whole number from 0 to 1000\n"


def test_config_show_tells_of_llama_cpps_variable(program: Program) -> None:
    program = replace(program, extra={"GGML_N_GPU_LAYERS": "7"})
    shown = program.run("--gpu-layers", "3", "config", "show", "llamacpp").stdout
    assert "gpu_layers = 7  # GGML_N_GPU_LAYERS\n" in shown


def test_config_path_names_all_places(program: Program) -> None:
    lines = program.run("config", "path").stdout.splitlines()
    places = dict(line.split(maxsplit=1) for line in lines)
    assert places["settings"] == str(program.config / "config.toml")
    assert places["project"] == "(none)"
    assert all(str(program.home) in place for name, place in places.items() if name != "project")


def test_sessions_list_show_delete(program: Program) -> None:
    assert program.run("sessions", "list").stdout == ""
    program.run_scripted('text: "\\u001b[31mred"', "-e", "first question")
    (path,) = program.sessions
    listed = program.run("sessions", "list").stdout
    assert listed.startswith(path.stem)
    assert "  2 messages  " in listed
    assert "first question" in listed
    shown = program.run("sessions", "show", path.stem[:15])
    assert "> first question" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert program.run("sessions", "delete", "x").returncode == 1
    assert program.run("sessions", "delete", path.stem).returncode == 0
    assert program.sessions == []


def test_a_key_is_shown_once(program: Program) -> None:
    added = program.run("apikey", "add", "laptop")
    key = added.stdout.strip()
    assert key.startswith("sk-shep-")
    assert "--auth-mode json" in added.stderr
    assert key not in (program.config / "keys.json").read_text()
    listed = program.run("apikey", "list").stdout
    assert listed.startswith("laptop")
    assert key not in listed
    assert program.run("apikey", "add", "laptop").returncode == 1
    assert program.run("apikey", "remove", "laptop").returncode == 0
    assert program.run("apikey", "remove", "laptop").returncode == 1


def test_a_key_s_restrictions_and_use_are_shown(program: Program) -> None:
    wrong = (["--expires", "2020-01-01"], ["--model", "a b"], ["--note", "a\nb"])
    for options in (*wrong, ["--tokens-per-day", "0"], ["--scope", "all"]):
        assert program.run("apikey", "add", "x", *options).returncode == 2
    options = ["--expires", "2999-01-01", "--scope", "chat", "--model", "qwen*"]
    first = program.run("apikey", "add", "x", *options, "--requests-per-day", "5").stdout
    shown = program.run("apikey", "show", "x").stdout
    for part in ("2999-01-02T00:00:00", "chat", "qwen*", "5 requests per day", "last used  never"):
        assert part in shown
    assert program.run("apikey", "rotate", "x", "--grace", "soon").returncode == 2
    second = program.run("apikey", "rotate", "x", "--grace", "1h").stdout
    assert first != second
    assert "the old secret is valid until" in program.run("apikey", "show", "x").stdout
    usage = program.run("usage", "--json")
    assert (usage.returncode, usage.stdout) == (0, "[]\n")


def test_every_name_of_a_setting_will_do(program: Program) -> None:
    assert program.run("config", "set", "llamacpp.pp", "2").returncode == 0
    assert program.run("config", "get", "llamacpp.pipeline_parallel").stdout == "2\n"
    assert program.run("--set", "llamacpp.pp=3", "config", "get", "llamacpp.pp").stdout == "3\n"
