"""The arguments of a deployment, and the command that takes them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from shepherd.cli.commands.deploy import deploy as commands
from shepherd.cli.deploy.application import (
    check_settings,
    deploy,
    engine_options,
    http_options,
)
from shepherd.cli.deploy.arguments import DeployArguments, parse_range, read_arguments
from shepherd.config.settings import Config
from shepherd.errors import ConfigError


@pytest.mark.parametrize(("text", "numbers"), [("1", (1, 1)), ("2..5", (2, 5)), (" 3 ", (3, 3))])
def test_a_range_of_replicas(text: str, numbers: tuple[int, int]) -> None:
    parsed = parse_range(text)
    assert (parsed.minimum, parsed.maximum) == numbers
    assert parsed.scales == (numbers[0] != numbers[1])


@pytest.mark.parametrize("text", ["", "0", "0..2", "3..1", "1..", "-1", "1...2", "10001", "²"])
def test_wrong_ranges(text: str) -> None:
    with pytest.raises(ConfigError, match="replicas"):
        parse_range(text)
    with pytest.raises(ConfigError, match="argument replicas"):
        read_arguments({"replicas": text})


@pytest.mark.parametrize(
    "values",
    [{"cpus": 0}, {"gpus": -1}, {"replica": 2}, {"busy_factor": 0.5}, {"replicas": True}],
)
def test_a_wrong_argument_is_named(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"argument {next(iter(values))} "):
        read_arguments(values)


def test_each_option_of_the_command_is_an_argument() -> None:
    group = get_command(commands)
    assert isinstance(group, TyperGroup)
    options = {option.name for option in group.commands["ray"].params}
    own = {"host", "port", "auth_mode", "address", "dashboard"}
    assert options - own | {"directory", "settings"} == set(DeployArguments.model_fields)


def test_a_number_of_replicas_in_a_file_may_be_a_number() -> None:
    assert read_arguments({"replicas": 3}).replica_range.maximum == 3


def test_ray_gets_the_router_and_the_scaling() -> None:
    options = engine_options(read_arguments({"replicas": "1..4", "gpus": 1, "queue": 6}))
    assert options["autoscaling_config"]["max_replicas"] == 4
    assert options["autoscaling_config"]["target_ongoing_requests"] == 6
    assert options["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 1}
    router = options["request_router_config"]["request_router_class"]
    assert router == "shepherd.cli.deploy.router.PrefixRouter"
    assert engine_options(read_arguments({"replicas": "2"}))["num_replicas"] == 2


def config(**server: Any) -> Config:
    return Config.model_validate({"server": server})


def test_an_open_address_needs_keys_or_insistence() -> None:
    arguments = read_arguments({})
    with pytest.raises(ConfigError, match="Refusing to listen"):
        check_settings(arguments, config(host="0.0.0.0"))
    check_settings(arguments, config(host="0.0.0.0", auth_mode="json"))
    check_settings(read_arguments({"insecure": True}), config(host="::"))
    check_settings(arguments, config())


def test_a_unix_socket_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unix sockets"):
        check_settings(read_arguments({}), config(socket="/run/x"))


def test_the_proxy_gets_the_address_and_the_certificate(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    options = http_options(
        config(host="127.0.0.2", tls_cert="/c", tls_key="/k", tls_password_file=str(password)), 8443
    )
    assert options == {
        "host": "127.0.0.2",
        "port": 8443,
        "keep_alive_timeout_s": 65,
        "ssl_certfile": "/c",
        "ssl_keyfile": "/k",
        "ssl_keyfile_password": "secret",
    }


def test_the_key_may_be_in_the_file_of_the_certificate() -> None:
    assert http_options(config(tls_cert="/c"), 8443)["ssl_keyfile"] == "/c"


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_without_ray_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'ray\[serve\]'"):
        deploy(read_arguments({}), config())
