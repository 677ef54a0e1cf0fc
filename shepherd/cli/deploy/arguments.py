"""The arguments of the application, in a file or on a command line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shepherd.affinity import Balance
from shepherd.errors import ConfigError
from shepherd.validation import describe_problem

MAX_REPLICAS = 10_000
BUSY_SLACK = 4.0
"""A replica answers so many requests at a time, so that a further one does not wait."""

_RANGE = re.compile(r"([0-9]{1,5})(?:\.\.([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicaRange:
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
    minimum = int(match[1])
    maximum = int(match[2] or match[1])
    if not 1 <= minimum <= maximum <= MAX_REPLICAS:
        raise ConfigError(
            f"{text!r} is not a range of replicas: it must ascend, from 1 to {MAX_REPLICAS:,}."
        )
    return ReplicaRange(minimum, maximum)


class DeployArguments(BaseModel):
    """The arguments of the application, as the `args` of a Serve config file have them.

    Each replica reads the settings of its own machine, in `directory` if it is set; `settings` come
    on top, by `section.key`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: Annotated[str, Field(description="Number of replicas, or a range: 1..4.")] = "1"
    cpus: Annotated[float, Field(gt=0, description="CPU cores that Ray keeps per replica.")] = 1.0
    gpus: Annotated[float, Field(ge=0, description="GPUs per replica.")] = 0.0
    queue: Annotated[
        float, Field(gt=0, description="Requests per replica that scaling aims at.")
    ] = 4.0
    up_seconds: Annotated[
        float, Field(ge=0, description="Time with more load before a replica is added.")
    ] = 10.0
    down_seconds: Annotated[
        float, Field(ge=0, description="Time with less load before a replica is removed.")
    ] = 600.0
    max_requests: Annotated[
        int, Field(ge=1, description="Requests that a replica takes at a time; others wait.")
    ] = 64
    max_waiting: Annotated[
        int, Field(ge=1, description="Requests that may wait for a replica; others get a 503.")
    ] = 1024
    routers: Annotated[int, Field(ge=1, description="Processes that route requests.")] = 1
    busy_factor: Annotated[
        float, Field(ge=1, description="How many times busier the replica with the cache may be.")
    ] = Balance().factor
    busy_slack: Annotated[
        float, Field(ge=0, description="Requests that it may have in addition.")
    ] = BUSY_SLACK
    drain_seconds: Annotated[
        float, Field(ge=0, description="Time for running requests when a replica is replaced.")
    ] = 60.0
    health_seconds: Annotated[
        float, Field(gt=0, description="Interval of the health checks of replicas.")
    ] = 5.0
    directory: Annotated[str, Field(description="Working directory of the replicas.")] = ""
    insecure: Annotated[bool, Field(description="Serve beyond this machine without keys.")] = False
    settings: Mapping[str, object] = Field(
        default_factory=dict[str, object], description="Settings by section.key."
    )

    @field_validator("replicas", mode="before")
    @classmethod
    def _to_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("replicas")
    @classmethod
    def _check_range(cls, value: str) -> str:
        try:
            parse_range(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return value

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
