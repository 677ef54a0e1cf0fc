"""The application of Ray Serve: `shepherd.cli.deploy.application:application` in a config file."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from shepherd.cli.deploy.arguments import DeployArguments, read_arguments
from shepherd.cli.deploy.cluster import Application, ReplicaHandle, ray_module
from shepherd.cli.deploy.ingress import Ingress, ReplicaLostError, ReplicasBusyError
from shepherd.cli.deploy.replica import Replica, read_settings
from shepherd.cli.deploy.request import ReplicaReply, ReplicaRequest
from shepherd.server.api import ErrorShapes

NAME = "shepherd"
ENGINES, ROUTER = "Engine", "Router"
ROUTER_CLASS = "shepherd.cli.deploy.router.PrefixRouter"
_ADMIN_SECONDS = 30.0
_ROUTER_CPUS = 0.1
_LOGGING = {"enable_access_log": False}
"""Ray's log has no line for each request; the one of the replicas has."""

_METRICS_SECONDS, _LOOK_BACK_SECONDS = 2.0, 10.0
"""How often load is measured, and over which time scaling takes the mean of it."""


class Engine:
    """The deployment of replicas."""

    def __init__(self, arguments: Mapping[str, object]) -> None:
        replica = ray_module("serve").get_replica_context().replica_id.unique_id
        self._replica = Replica(read_arguments(arguments), replica)

    async def serve(self, request: ReplicaRequest) -> AsyncGenerator[list[Message]]:
        """The messages of an answer, as they come."""
        async with aclosing(self._replica.serve(request)) as batches:
            async for messages in batches:
                yield messages

    async def answer(self, request: ReplicaRequest) -> ReplicaReply:
        """The whole answer."""
        return await self._replica.answer(request)

    async def check_health(self) -> None:
        """Ray calls this at the start, and then regularly; it replaces replicas that raise."""
        await self._replica.check_health()

    async def __del__(self) -> None:
        """Ray calls this after the last request of a replica."""
        await self._replica.close()


class Router:
    """The deployment in front of the replicas."""

    def __init__(
        self, engines: ReplicaHandle, arguments: Mapping[str, object], addresses: Sequence[str]
    ) -> None:
        from shepherd.server.app import APIS, OPENAI

        config = read_settings(read_arguments(arguments))
        shapes = ErrorShapes(OPENAI.errors, APIS)
        replicas = _RayReplicas(engines)
        self._ingress = Ingress(replicas, shapes, config.server.max_body_bytes, addresses)

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

    def __init__(self, engines: ReplicaHandle) -> None:
        self._engines = engines
        self._serve = engines.options(method_name=Engine.serve.__name__, stream=True)
        self._errors: Any = ray_module("exceptions")
        self._serve_errors: Any = ray_module("serve.exceptions")

    async def send(self, request: ReplicaRequest) -> AsyncGenerator[Sequence[Message]]:
        """Ray cancels the work of the replica if this generator is cancelled."""
        batches: Any = self._serve.remote(request)
        ended = False
        try:
            async for messages in batches:
                yield messages
            ended = True
        except self._errors.RayActorError as error:
            ended = True
            raise ReplicaLostError(_first_line(error)) from error
        except self._serve_errors.RayServeException as error:
            ended = True
            raise ReplicasBusyError(_first_line(error)) from error
        finally:
            if not ended:
                batches.cancel()

    async def send_to_all(self, request: ReplicaRequest) -> Sequence[ReplicaReply]:
        """Replicas that die meanwhile are left out."""
        response = self._engines.broadcast(Engine.answer.__name__, request)
        results: Sequence[object] = await response.results_async(
            timeout_s=_ADMIN_SECONDS, return_exceptions=True
        )
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, self._errors.RayActorError):
                raise result
        return [result for result in results if isinstance(result, ReplicaReply)]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def application(args: Mapping[str, object]) -> Application:
    """The application with these arguments (see `DeployArguments`); raises ConfigError."""
    return build_application(read_arguments(args))


def build_application(arguments: DeployArguments, addresses: Sequence[str] = ()) -> Application:
    """The deployments, bound to each other; `addresses` are for `shepherd ctl status`."""
    serve, values = ray_module("serve"), arguments.model_dump()
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
    options: dict[str, Any] = {
        "logging_config": _LOGGING,
        "max_ongoing_requests": arguments.max_requests,
        "max_queued_requests": arguments.max_waiting,
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
        "health_check_period_s": arguments.health_seconds,
        "graceful_shutdown_timeout_s": arguments.drain_seconds,
        "request_router_config": {
            "request_router_class": ROUTER_CLASS,
            "request_router_kwargs": {
                "factor": arguments.busy_factor,
                "slack": arguments.busy_slack,
            },
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
