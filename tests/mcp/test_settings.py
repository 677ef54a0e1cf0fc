"""Definitions of servers: files, the commands of the shell, and what is refused."""

import json
from collections.abc import Mapping
from pathlib import Path

import mcp_types as types
import pytest

from shepherd.cli.batch.protocol import DecisionInput, InputError, parse_input
from shepherd.config.paths import Paths
from shepherd.config.secrets import Secrets
from shepherd.errors import ConfigError
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Origin, ServerStore, all_servers
from shepherd.mcp.tool import (
    MAX_NAME,
    MAX_SCHEMA_BYTES,
    access_target,
    arguments_model,
    content,
    model_schema,
    tool_names,
)
from tests.cli.program import Program
from tests.mcp.harness import paths_below, server


def test_a_project_adds_servers_without_rights(tmp_path: Path) -> None:
    paths, root = paths_below(tmp_path), tmp_path / "project"
    below = root / "deep"
    below.mkdir(parents=True)
    (root / ".git").mkdir()
    ServerStore(paths.mcp_file).save(server("mine", command="mine"))
    servers = {
        "mine": {"command": "other"},
        "theirs": {"type": "stdio", "command": "run", "env": {"A": "${B}"}},
        "free": {"command": "run", "sandbox": False},
        "Bad Name": {"command": "run"},
    }
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    warnings: list[str] = []
    found = {one.name: one for one in all_servers(paths, below, warnings.append)}
    assert [*found] == ["mine", "theirs"]
    assert found["mine"].definition.command == "mine"
    assert found["theirs"].origin is Origin.PROJECT
    text = "\n".join(warnings)
    assert "the server mine is ignored" in text
    assert "may not set free.sandbox" in text
    assert "can't be a server's name" in text


@pytest.mark.parametrize("text", ["[", "[1]", '{"mcpServers": 3}', '{"mcpServers": {"a": 1}}'])
def test_a_broken_file_of_a_project_is_only_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    warnings: list[str] = []
    assert all_servers(paths_below(tmp_path / "home"), tmp_path, warnings.append) == []
    assert len(warnings) == (text != "[1]")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"command": "a", "url": "https://b"},
        {"command": "a", "headers": {"X": "y"}},
        {"command": "a", "env": {"API_TOKEN": "abc"}},
        {"command": "a", "args": ["--api-key", "abc"]},
        {"command": "a", "args": ["--token=abc"]},
        {"url": "https://b", "headers": {"Authorization": "Bearer abc"}},
        {"url": "https://b/mcp?api_key=abc"},
        {"command": "a", "unknown": 1},
        {"command": "a\0b"},
    ],
)
def test_wrong_definitions_and_written_secrets_are_refused(values: Mapping[str, object]) -> None:
    with pytest.raises(ConfigError) as error:
        server("one", **values)
    assert "abc" not in str(error.value)


def test_names_suit_all_apis_and_differ() -> None:
    names = tool_names("my-server", ["a.b", "a b", "a_b", "x" * 100, "x" * 101, "ünï"])
    assert len({*names}) == len(names)
    assert all(len(name) <= MAX_NAME and name.isascii() for name in names)
    assert names[0] == "my_server__a_b"
    assert access_target("s", "get*") != access_target("s", "get?")
    assert not {*"*?[]"} & {*access_target("s", "get*[a]?")}


def test_schemas_are_reduced_and_arguments_checked() -> None:
    schema = model_schema(
        {
            "type": "object",
            "properties": {
                "path": {"$ref": "#/$defs/path"},
                "loop": {"$ref": "#/properties/loop"},
                "other": {"$ref": "https://example.com/schema"},
                "n": {"anyOf": [{"type": "integer", "default": 3}, {"type": "null"}]},
                "note": {"type": "string", "description": "null for none"},
            },
            "required": ["path", "missing"],
            "$defs": {"path": {"type": "string", "pattern": "(a+)+$", "format": "uri"}},
        }
    )
    assert schema["properties"]["path"] == {"type": "string"}
    assert schema["required"] == ["path"]
    model = arguments_model("do", schema)
    given = {"path": "x", "n": None, "note": None, "extra": 1}
    assert model.model_validate(given).values == {"path": "x", "n": None, "extra": 1}
    with pytest.raises(ValueError, match="'path' is a required property"):
        model.model_validate({"n": 1})
    huge = {"properties": {f"p{n}": {"type": "string", "enum": ["x" * 99]} for n in range(300)}}
    assert len(json.dumps(model_schema(huge))) <= MAX_SCHEMA_BYTES


def test_commands_manage_servers_and_hide_secrets(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    program = Program(home, work)
    add = ["mcp", "add", "one", "--secret", "TOKEN", "--", "no-such-program", "-x"]
    assert program.run(*add, stdin="hidden-value\n").returncode == 0
    shown = program.run("mcp", "show", "one").stdout
    assert "TOKEN (file)" in shown
    assert "no-such-program -x" in shown
    kept = (program.config / "mcp.toml").read_text()
    assert "hidden-value" not in shown + kept
    assert "hidden-value" in (program.config / "credentials.toml").read_text()
    tested = program.run("mcp", "test", "one")
    assert tested.returncode == 1
    assert "there is no program no-such-program" in tested.stdout
    assert program.run("mcp", "remove", "one").returncode == 0
    assert "hidden-value" not in (program.config / "credentials.toml").read_text()
    assert Paths.from_env(program.env).mcp_file.read_text() == ""


def test_programs_answer_forms_with_values() -> None:
    line = {"type": "decision", "id": "a", "decision": "once", "values": ["Ada", "7"]}
    answer = parse_input(json.dumps(line).encode())
    assert isinstance(answer, DecisionInput)
    assert answer.approval.values == ("Ada", "7")
    with pytest.raises(InputError):
        parse_input(json.dumps({**line, "values": [1]}).encode())


def test_references_are_filled_but_not_with_secrets_in_arguments(tmp_path: Path) -> None:
    secrets = ServerSecrets(Secrets(tmp_path / "keys", {}), {"WHERE": "here"})
    one = server("one", command="a", args=["${WHERE}", "${OTHER:-there}"], env={"A": "${WHERE}!"})
    assert secrets.arguments(one) == ["here", "there"]
    assert secrets.environment(one)["A"] == "here!"
    for wrong in ("${MY_TOKEN}", "${MISSING}"):
        with pytest.raises(ConfigError):
            secrets.arguments(server("one", command="a", args=[wrong]))


def test_no_part_of_a_result_has_control_sequences(tmp_path: Path) -> None:
    odd = "a\x1b[31mb\x1b]52;c;eA==\x07\x9bc"
    texts = types.TextResourceContents(uri=odd, text=odd)
    bytes_ = types.BlobResourceContents(uri=odd, blob="eA==", mime_type=odd)
    broken = types.BlobResourceContents(uri=odd, blob="x", mime_type=odd)
    link = types.ResourceLink(type="resource_link", uri=odd, name=odd, description=odd)
    audio = types.AudioContent(type="audio", data="eA==", mime_type=odd)
    plain = types.TextContent(type="text", text=odd)
    text, _images = content([texts, bytes_, broken, link, audio, plain], tmp_path)
    assert text.count("abc") == 10
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text.replace("\n", ""))
