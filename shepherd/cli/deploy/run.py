"""Deploys the application, on this machine or in a cluster."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.cli.deploy.arguments import DeployArguments
from shepherd.cli.deploy.cluster import check_installed, ray_module
from shepherd.cli.serve.database import prepared_database
from shepherd.config.choices import AuthMode
from shepherd.config.settings import Config
from shepherd.errors import ConfigError
from shepherd.server.guard import names_this_machine


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment to make; with an `address` in that cluster, and then it stays there."""

    arguments: DeployArguments
    config: Config
    address: str = ""
    dashboard: bool = False

    @property
    def host(self) -> str:
        """Where Ray's proxy listens."""
        return self.config.server.host


def deploy(deployment: Deployment) -> int:
    """Serve until a signal ends it; in a cluster, return when the replicas are ready.

    Raises ConfigError, and DatabaseError on this machine if the database can't be used.
    """
    check_installed()
    check_settings(deployment)
    from shepherd.cli.deploy.cluster import (
        free_port,
        joined_cluster,
        local_cluster,
        wait_for_signal,
    )

    with ExitStack() as cluster:
        if deployment.address:
            cluster.enter_context(joined_cluster(deployment.address))
        else:
            prepared_database(deployment.config, os.environ)  # an error here, not in each replica
            running = local_cluster(deployment.arguments, dashboard=deployment.dashboard)
            cluster.enter_context(running)
        port = deployment.config.server.port or free_port(deployment.host)
        _start(deployment, port)
        if not deployment.address:
            try:
                wait_for_signal()
            finally:
                sys.stderr.write("shepherd: Ending: running requests go on.\n")
                ray_module("serve").shutdown()
    return 0


def check_settings(deployment: Deployment) -> None:
    """Raise ConfigError for settings that Ray's proxy can't keep."""
    section = deployment.config.server
    safe = section.auth_mode is AuthMode.JSON or deployment.arguments.insecure
    if not safe and not names_this_machine(section.host):
        raise ConfigError(
            f"Refusing to listen on {section.host} without authentication: every machine that "
            "reaches it could use the model. Use --auth-mode json (and `shepherd apikey add "
            "NAME`), or --insecure if that is what you want."
        )
    if section.socket:
        raise ConfigError("Ray's proxy does not listen on Unix sockets; unset server.socket.")
    if section.tls_password_file and not section.tls_cert:
        raise ConfigError("server.tls_password_file is set without server.tls_cert; set both.")


def http_options(config: Config, port: int) -> dict[str, Any]:
    """The options of Ray's proxy: its address, its certificate, its time for idle connections."""
    section = config.server
    options: dict[str, Any] = {
        "host": section.host,
        "port": port,
        "keep_alive_timeout_s": round(section.idle_timeout),
    }
    if section.tls_cert:
        options["ssl_certfile"] = str(Path(section.tls_cert).expanduser().absolute())
        options["ssl_keyfile"] = str(Path(section.tls_key).expanduser().absolute())
    if section.tls_password_file:
        password = Path(section.tls_password_file).expanduser().read_text(encoding="utf-8").strip()
        options["ssl_keyfile_password"] = password
    return options


def _start(deployment: Deployment, port: int) -> None:
    from shepherd.cli.deploy.application import NAME, build_application

    serve: Any = ray_module("serve")
    config, arguments = deployment.config, deployment.arguments
    scheme = "https" if config.server.tls_cert else "http"
    name = f"[{deployment.host}]" if ":" in deployment.host else deployment.host
    url = f"{scheme}://{name}:{port}"
    serve.start(proxy_location="HeadOnly", http_options=http_options(config, port))
    application = build_application(arguments, [url])
    try:
        serve.run(application, name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise ConfigError(f"The replicas do not start: {error}") from error
    sys.stderr.write(f"shepherd: Serving with {arguments.replicas} replicas at {url}/v1\n")
    sys.stderr.flush()
