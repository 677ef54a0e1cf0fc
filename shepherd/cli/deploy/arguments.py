"""The arguments of the application, in a file or on a command line."""

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from shepherd.affinity import Balance
from shepherd.errors import ConfigError
from shepherd.validation import describe_problem

MAX_REPLICAS = 10_000
BUSY_SLACK = 4.0
"""A replica answers so many requests at a time, so that a further one does not wait."""

_RANGE = re.compile(r"(?P<minimum>[0-9]{1,5})(?:\.\.(?P<maximum>[0-9]{1,5}))?", re.ASCII)


class ReplicaRange(Struct, frozen=True):
    """The numbers of replicas between which a deployment scales."""

    minimum: int
    maximum: int

    @property
    def scales(self) -> bool:
        """Whether the number of replicas follows the load."""
        return self.minimum != self.maximum


def parse_range(text: str) -> ReplicaRange:
    """The range that `3` or `1..4` stands for; raises ConfigError."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a number of replicas: write 3, or 1..4 for a range.")
    minimum = int(match["minimum"])
    maximum = int(match["maximum"] or minimum)
    if not 1 <= minimum <= maximum <= MAX_REPLICAS:
        raise ConfigError(
            f"{text!r} is not a range of replicas: it must ascend, from 1 to {MAX_REPLICAS:,}."
        )
    return ReplicaRange(minimum, maximum)


def _checked_range(text: str) -> str:
    """The text of a range, which stays one: it travels to Ray as plain data."""
    try:
        parse_range(text)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return text


# a number in a file may be written without quotes
Replicas = Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(_checked_range)]


class DeployArguments(BaseModel):
    """The arguments of the application, as the `args` of a Serve config file have them.

    Each replica reads the settings of its own machine, in `directory` if it is set; `settings` come
    on top, by `section.key`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: Replicas = "1"
    """Number of replicas, or a range: 1..4."""

    cpus: float = Field(default=1.0, gt=0)
    """CPU cores that Ray keeps per replica."""

    gpus: float = Field(default=0.0, ge=0)
    """GPUs per replica."""

    queue: float = Field(default=4.0, gt=0)
    """Requests per replica that scaling aims at."""

    up_seconds: float = Field(default=10.0, ge=0)
    """Time with more load before a replica is added."""

    down_seconds: float = Field(default=600.0, ge=0)
    """Time with less load before a replica is removed."""

    max_requests: int = Field(default=64, ge=1)
    """Requests that a replica takes at a time; others wait."""

    max_waiting: int = Field(default=1024, ge=1)
    """Requests that may wait for a replica; others get a 503."""

    routers: int = Field(default=1, ge=1)
    """Processes that route requests."""

    busy_factor: float = Field(default=Balance().factor, ge=1)
    """How many times busier the replica with the cache may be."""

    busy_slack: float = Field(default=BUSY_SLACK, ge=0)
    """Requests that it may have in addition."""

    drain_seconds: float = Field(default=60.0, ge=0)
    """Time for running requests when a replica is replaced."""

    health_seconds: float = Field(default=5.0, gt=0)
    """Interval of the health checks of replicas."""

    directory: str = ""
    """Working directory of the replicas."""

    insecure: bool = False
    """Serve beyond this machine without keys."""

    settings: Mapping[str, object] = {}
    """Settings by section.key."""

    @property
    def replica_range(self) -> ReplicaRange:
        """The parsed `replicas`."""
        return parse_range(self.replicas)


def read_arguments(values: Mapping[str, object]) -> DeployArguments:
    """The arguments in a mapping; raises ConfigError that names the wrong one."""
    try:
        return DeployArguments.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in problem["loc"])
        text = describe_problem(problem, "", show_value=True)
        raise ConfigError(f"The argument {name} of the deployment: {text}") from error
