"""The application of Ray Serve, and its start on this machine or in a cluster.

It is `shepherd.cli.deploy.application:application` in a config file of Ray Serve.
"""

import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from shepherd.cli.deploy import cluster, replica
from shepherd.cli.deploy.arguments import DeployArguments, read_arguments
from shepherd.cli.deploy.ingress import Ingress, ReplicaLostError, ReplicasBusyError
from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest
from shepherd.cli.serve.database import prepared_database
from shepherd.cli.serve.http import tls_files
from shepherd.config.section import AuthMode
from shepherd.config.settings import Config
from shepherd.errors import ConfigError
from shepherd.server.api import ErrorShapes
from shepherd.server.app import APIS, OPENAI
from shepherd.server.guard import names_this_machine
from shepherd.server.listen import UnsafeAddressError

NAME = "shepherd"
ENGINES, ROUTER = "Engine", "Router"
ROUTER_CLASS = "shepherd.cli.deploy.router.PrefixRouter"
_ADMIN_SECONDS = 30.0
_ROUTER_CPUS = 0.1
_HEALTH_SECONDS = 10.0
"""The time for one health check; Ray replaces a replica after three that fail."""

_LOGGING = {"enable_access_log": False}
"""Ray's log has no line for each request; the one of the replicas has."""

_METRICS_SECONDS, _LOOK_BACK_SECONDS = 2.0, 10.0
"""How often load is measured, and over which time scaling takes the mean of it."""


class Engine(replica.Replica):
    """The deployment of replicas.

    Ray calls `check_health` at the start, and then regularly; it replaces replicas that raise.
    """

    def __init__(self, arguments: Mapping[str, object]) -> None:
        replica_name = cluster.ray_module("serve").get_replica_context().replica_id.unique_id
        super().__init__(read_arguments(arguments), replica_name)

    async def __del__(self) -> None:
        """Ray calls this after the last request of a replica."""
        await self.close()


class Router:
    """The deployment in front of the replicas."""

    def __init__(
        self, engines: Any, arguments: Mapping[str, object], addresses: Sequence[str]
    ) -> None:
        config = replica.read_settings(read_arguments(arguments))
        shapes = ErrorShapes(OPENAI.errors, APIS)
        limit = config.server.max_body_bytes
        self._ingress = Ingress(_RayReplicas(engines), shapes, limit, addresses)

    async def __call__(self, request: Request) -> Response:
        """Ray's entry for HTTP."""
        return _IngressResponse(self._ingress)


class _IngressResponse(Response):
    """A response that an ASGI application sends."""

    def __init__(self, ingress: Ingress) -> None:
        super().__init__()
        self._ingress = ingress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._ingress(scope, receive, send)


class _RayReplicas:
    """The replicas behind a handle."""

    def __init__(self, engines: Any) -> None:
        self._engines = engines
        self._serve = engines.options(method_name=Engine.serve.__name__, stream=True)
        self._errors: Any = cluster.ray_module("exceptions")
        self._serve_errors: Any = cluster.ray_module("serve.exceptions")

    async def send(self, request: ReplicaRequest) -> AsyncGenerator[Sequence[Message]]:
        """The messages of the replica, whose work ends if this generator is closed."""
        batches: Any = self._serve.remote(request)
        try:
            async for messages in batches:
                yield messages
        except self._errors.RayActorError as error:
            raise ReplicaLostError(_first_line(error)) from error
        except self._serve_errors.RayServeException as error:
            raise ReplicasBusyError(_first_line(error)) from error
        except BaseException:  # also the close of this generator, when the client has left
            batches.cancel()
            raise

    async def send_to_all(self, request: ReplicaRequest) -> Sequence[ReplicaReply]:
        """Replicas that die meanwhile are left out."""
        response = self._engines.broadcast(Engine.answer.__name__, request)
        results: Sequence[object] = await response.results_async(
            timeout_s=_ADMIN_SECONDS, return_exceptions=True
        )
        for result in results:
            has_died = isinstance(result, self._errors.RayActorError)
            if isinstance(result, Exception) and not has_died:
                raise result
        return [result for result in results if isinstance(result, ReplicaReply)]


def _first_line(error: Exception) -> str:
    """Why it failed, without the tracebacks that Ray puts behind it."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def application(args: Mapping[str, object]) -> Any:
    """The application with these arguments (see `DeployArguments`); raises ConfigError."""
    return build_application(read_arguments(args))


def build_application(arguments: DeployArguments, addresses: Sequence[str] = ()) -> Any:
    """The deployments, bound to each other; `addresses` are for `shepherd ctl status`.

    A router holds all requests that its replicas answer, and those that wait for them.
    """
    serve, values = cluster.ray_module("serve"), arguments.model_dump()
    engines = serve.deployment(Engine).options(name=ENGINES, **engine_options(arguments))
    router = serve.deployment(Router).options(
        name=ROUTER,
        num_replicas=arguments.routers,
        max_ongoing_requests=arguments.max_requests * arguments.replica_range.maximum
        + arguments.max_waiting,
        ray_actor_options={"num_cpus": _ROUTER_CPUS},
        logging_config=_LOGGING,
        graceful_shutdown_timeout_s=arguments.drain_seconds,
    )
    return router.bind(engines.bind(values), values, list(addresses))


def engine_options(arguments: DeployArguments) -> dict[str, Any]:
    """Ray's options of the replicas: their number, their resources, their health, their router."""
    replicas = arguments.replica_range
    routing = {
        "factor": arguments.busy_factor,
        "slack": arguments.busy_slack,
        "beside_others": arguments.routers > 1,
    }
    options: dict[str, Any] = {
        "logging_config": _LOGGING,
        "max_ongoing_requests": arguments.max_requests,
        "max_queued_requests": arguments.max_waiting,
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
        "health_check_period_s": arguments.health_seconds,
        "health_check_timeout_s": _HEALTH_SECONDS,
        "graceful_shutdown_timeout_s": arguments.drain_seconds,
        "request_router_config": {
            "request_router_class": ROUTER_CLASS,
            "request_router_kwargs": routing,
        },
    }
    if replicas.scales:
        options["autoscaling_config"] = {
            "min_replicas": replicas.minimum,
            "max_replicas": replicas.maximum,
            "target_ongoing_requests": arguments.queue,
            "upscale_delay_s": arguments.up_seconds,
            "downscale_delay_s": arguments.down_seconds,
            "metrics_interval_s": _METRICS_SECONDS,
            "look_back_period_s": _LOOK_BACK_SECONDS,
        }
    else:
        options["num_replicas"] = replicas.minimum
    return options


def deploy(
    arguments: DeployArguments, config: Config, address: str = "", *, dashboard: bool = False
) -> int:
    """Serve until a signal ends it; with an `address`, deploy in that cluster and return.

    Raises ConfigError, and DatabaseError on this machine if the database can't be used.
    """
    cluster.check_installed()
    check_settings(arguments, config)
    if address:  # the deployment goes on in the cluster when this program ends
        with cluster.joined_cluster(address):
            _start(arguments, config)
        return 0
    prepared_database(config, os.environ)  # an error here, not in each replica
    with cluster.local_cluster(arguments, dashboard=dashboard):
        _start(arguments, config)
        try:
            cluster.wait_for_signal()
        finally:
            sys.stderr.write("shepherd: Ending: running requests go on.\n")
            cluster.ray_module("serve").shutdown()
    return 0


def check_settings(arguments: DeployArguments, config: Config) -> None:
    """Raise ConfigError for settings that Ray's proxy can't keep."""
    section = config.server
    needs_keys = section.auth_mode is AuthMode.JSON
    if not (needs_keys or arguments.insecure or names_this_machine(section.host)):
        raise UnsafeAddressError(section.host)
    if section.socket:
        raise ConfigError("Ray's proxy does not listen on Unix sockets; unset server.socket.")
    tls_files(config)  # raises ConfigError for a key without a certificate


def http_options(config: Config, port: int) -> dict[str, Any]:
    """The options of Ray's proxy: its address, its certificate, its time for idle connections."""
    section, files = config.server, tls_files(config)
    options: dict[str, Any] = {
        "host": section.host,
        "port": port,
        "keep_alive_timeout_s": round(section.idle_timeout),
    }
    if files is not None:
        options |= {"ssl_certfile": str(files.certificate), "ssl_keyfile": str(files.key_file)}
        if files.password is not None:  # Ray takes the password itself
            options["ssl_keyfile_password"] = files.password.read_text("utf-8").strip()
    return options


def _start(arguments: DeployArguments, config: Config) -> None:
    """Start Ray's proxy and the deployments, and say where; raises ConfigError."""
    serve: Any = cluster.ray_module("serve")
    host = config.server.host
    port = config.server.port or cluster.free_port(host)  # 0: any port
    url = config.server.url(port, encrypted=bool(config.server.tls_cert))
    serve.start(proxy_location="HeadOnly", http_options=http_options(config, port))
    try:
        serve.run(build_application(arguments, [url]), name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise ConfigError(f"The replicas do not start: {error}") from error
    sys.stderr.write(f"shepherd: Serving with {arguments.replicas} replicas at {url}/v1\n")
    sys.stderr.flush()
