"""The commands with a database: keys, usage, its password, and a copy of what was in files."""

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from shepherd.config.paths import Paths
from shepherd.server.access.key import KeyLimits
from shepherd.server.access.keys import KeyStore
from shepherd.server.access.shared import (
    SharedLimits,
    keys_in,
    limits_in,
    open_limits,
)
from shepherd.server.access.usage import Usage, UsageStore
from shepherd.server.errors import ApiError
from shepherd.server.openai_responses.store import ResponseStore, StoredResponse, responses_in
from shepherd.storage.postgres import PostgresServer
from tests.cli.program import Program
from tests.postgres import PASSWORD, RealPostgres


@pytest.fixture
def program(tmp_path: Path) -> Program:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return Program(tmp_path / "home", tmp_path / "work")


async def test_what_was_in_files_is_used_from_the_database(
    program: Program, postgres: RealPostgres
) -> None:
    paths = Paths.from_env({"HOME": str(program.home)})
    limits = KeyLimits(requests_per_day=5)
    secret = KeyStore(paths.keys_file).add("mine", lambda key: replace(key, limits=limits))
    day = time.strftime("%Y-%m-%d", time.gmtime())
    usage = UsageStore(paths.usage_file)
    usage.add(Usage(day, "mine", "m", prompt_tokens=7))
    usage.flush()
    counted = SharedLimits(open_limits(paths.usage_file), threads=1)
    for _ in range(4):
        await counted.count_request(KeyStore(paths.keys_file).get("mine"))
    body = {"id": "resp_1", "previous_response_id": None, "output": [{"id": "out", "x": "é\x00"}]}
    response = StoredResponse(body, [{"id": "in"}])
    await ResponseStore(paths.responses_file, 9, 1).save("mine", response)

    address = postgres.new_database()
    assert program.run("config", "set", "server.database", address.url).returncode == 0
    refused = program.run("database", "migrate")
    assert refused.returncode == 1
    assert "PostgreSQL" in refused.stderr
    stored = program.run("database", "password", stdin=f"{PASSWORD}\n")
    assert stored.returncode == 0, stored.stderr
    assert "mine" not in program.run("apikey", "list").stdout
    outputs = [stored, *(program.run("database", "copy", "--sessions") for _ in range(2))]
    assert [done.returncode for done in outputs] == [0, 0, 0], outputs[1].stderr
    outputs += [program.run("config", "show", "server"), program.run("apikey", "show", "mine")]
    assert not any(PASSWORD in done.stdout + done.stderr for done in outputs)
    assert "used" in outputs[-1].stdout
    (row,) = json.loads(program.run("usage", "--json").stdout)
    assert (row["key"], row["requests"], row["prompt_tokens"]) == ("mine", 1, 7)

    server = PostgresServer(address)
    key = keys_in(server).find(secret)
    assert key is not None
    assert await ResponseStore(responses_in(server), 9, 1).load("mine", "resp_1") == response
    shared = SharedLimits(limits_in(server), None, clock=None)
    await shared.count_request(key)
    with pytest.raises(ApiError, match="requests per day"):
        await shared.count_request(key)


def test_a_server_does_not_start_without_its_database(program: Program) -> None:
    """Not even one without keys, which would need the database only later."""
    place = "server.database=postgresql://127.0.0.1:1/none"
    refused = program.run("--set", place, "--server", "--port", "0")
    assert refused.returncode == 1
    assert "127.0.0.1:1" in refused.stderr
    assert "Traceback" not in refused.stderr
    checked = program.run("--set", place, "doctor")
    assert checked.returncode == 1
    assert "\nBroken: database." in checked.stdout
