"""Backends for real servers, made as the program makes them, and turns that are kept."""

from dataclasses import dataclass, field

from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.connect import connect
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.events import EventCallback
from shepherd.messages import ToolCall
from shepherd.sampling import Sampling
from shepherd.session import Session
from shepherd.tools.registry import default_registry
from shepherd.tools.tool import ToolResult

KEY_VARIABLE = "UPSTREAM_KEY"


async def provider(kind: str, url: str, key: str = "", **settings: object) -> ApiBackend:
    """Connect to a provider of this type at `url`, which the errors call `up`."""
    values = {"type": kind, "base_url": url, "api_key": "none", **settings}
    env = {"HOME": "/nonexistent"}
    if key:
        env[KEY_VARIABLE] = key
        values["api_key"] = f"env:{KEY_VARIABLE}"
    return await connect(make_provider("up", values), ProviderBook(Paths.from_env(env), env))


def asking(*, tools: bool = False, thinking: bool = False) -> Session:
    """A session that answers the same every time, with the tool that lists a directory."""
    specs = [spec for spec in default_registry().specs() if spec.name == "list_directory"]
    return Session(
        "You are a helpful assistant.",
        tools=specs if tools else [],
        thinking=thinking,
        sampling=Sampling(temperature=0.0),
    )


@dataclass
class Files:
    """Runs every call: there are two files everywhere."""

    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    async def run(
        self, call: ToolCall, output_bytes: int | None = None, on_event: EventCallback | None = None
    ) -> ToolResult:
        self.calls.append(call)
        return ToolResult("notes.txt\nmain.py")
