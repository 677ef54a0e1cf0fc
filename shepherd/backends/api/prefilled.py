"""The handle of a request that is ready to be sent."""

from shepherd.backends.api.wire import WireRequest
from shepherd.backends.base import Prefilled
from shepherd.logprobs import TokenLogprob
from shepherd.session import Session


class ApiPrefilled(Prefilled):
    """Holds nothing: the connection is made for the answer."""

    def __init__(self, session: Session, request: WireRequest, prompt_tokens: int) -> None:
        self.session = session
        self.request = request
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        self.logprobs: list[TokenLogprob] | None = None
        if session.sampling.logprobs is not None:
            self.logprobs = []
