"""The handle of a request that is ready to be sent."""

from dataclasses import dataclass

from shepherd.backends.api.adapter import Adapter, ApiRequest
from shepherd.backends.base import Prefilled
from shepherd.logprobs import TokenLogprob
from shepherd.session import Session


@dataclass(frozen=True, slots=True)
class Prompt:
    """A session as it is sent to a provider.

    `session` has the images that the model can see, `sent` is what `adapter` sends, `counted` the
    same message by message (see `prompted_tools`).
    """

    session: Session
    sent: Session
    counted: Session
    adapter: Adapter
    request: ApiRequest

    @property
    def prompted_tools(self) -> bool:
        """Whether tools are offered only in the system message."""
        return bool(self.session.tools) and not self.sent.tools


class ApiPrefilled(Prefilled):
    """Holds no resources: the connection is opened for the answer."""

    def __init__(self, prompt: Prompt, prompt_tokens: int) -> None:
        self.prompt = prompt
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        self.logprobs: list[TokenLogprob] | None = None
        if prompt.session.sampling.logprobs is not None:
            self.logprobs = []
