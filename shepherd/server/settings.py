"""What the server is told when it starts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens and its limits; whoever has the keys decides who comes in.

    `thinking` and `max_tokens` are for requests that don't say whether the model is to reason and
    how much it may generate (0: as many tokens as fit).
    `cors_origins` are the origins of web pages that may call the server. `keepalive` is the
    silence in seconds after which a stream sends a comment. `insecure` insists on listening
    beyond loopback without authentication. `max_choices` is how many answers (`n`) a request gets.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    insecure: bool = False
    thinking: bool = False
    max_tokens: int = 0
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 16 * 1024 * 1024
    keepalive: float = 15.0
    max_choices: int = 8
