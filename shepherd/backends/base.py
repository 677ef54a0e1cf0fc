"""The interface of every backend, and the result of a generation."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import StrEnum
from types import TracebackType

from msgspec import Struct, field
from msgspec.structs import replace

from shepherd.backends.embedding import Embedder
from shepherd.backends.text_model import TextModel
from shepherd.errors import ImageError
from shepherd.events import EventCallback, FinishReason, Stats
from shepherd.images import Image
from shepherd.messages import Message, Role
from shepherd.sampling import Sampling, TokenLogprob, choice_seed
from shepherd.session import Session


class Generation(Struct, frozen=True):
    """The result of a backend: the assistant's message exactly as it goes into history.

    `problems` tell the model why text that looks like a call is not valid. `logprobs` are those of
    the content's tokens; None if not requested or not supported. `broken` says why an answer ended
    too early, "" if it did not or the reason is unknown. `stop_string` is the request's stop string
    that ended the answer, "" if none did or it is unknown.
    """

    message: Message
    finish_reason: FinishReason
    stats: Stats = field(default_factory=Stats)
    problems: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    broken: str = ""
    stop_string: str = ""


class CacheTier(Struct, frozen=True):
    """One place where prompts are kept: its contents, and its counts since the model was loaded.

    `hits` prompts began with `tokens` tokens from here; `evictions` entries were removed.
    """

    name: str
    entries: int
    bytes: int
    hits: int
    tokens: int
    evictions: int


class Lease(Struct, frozen=True):
    """What the owner of a session knows of its next request, for the engine that keeps its prompt.

    It comes in about `seconds` when a tool has answered, when a person writes if that is None, and
    never if it is infinite. Engines infer the first two from the calls of an answer.
    """

    session: str
    seconds: float | None = None


class Health(StrEnum):
    """Whether an upstream gets requests: a busy one later, one that is down after a check."""

    UP = "up"
    BUSY = "busy"
    DOWN = "down"


class UpstreamState(Struct, frozen=True):
    """One upstream: its health, and its counts since the provider was opened.

    `requests` includes the `failures`, and those that are `running`. `cached_tokens` of the
    `prompt_tokens` came from its cache. `error` is the reason why it is not up, else "".
    """

    url: str
    health: Health = Health.UP
    running: int = 0
    requests: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""

    def describe(self) -> str:
        """The state in a line."""
        counts = [f"{self.running} running", f"{self.requests} requests"]
        if self.failures:
            counts.append(f"{self.failures} failed")
        if self.prompt_tokens:
            counts.append(f"{self.cached_tokens / self.prompt_tokens:.0%} cached")
        reason = f": {self.error}" if self.error else ""
        return f"{self.url} {self.health} ({', '.join(counts)}){reason}"


class RequestState(Struct, frozen=True):
    """A request that runs, or waits at a `place` (the first one is 1), and whose it is.

    It came before `seconds`, and will probably begin in `expected` seconds; 0 is unknown.
    """

    tenant: str
    prompt_tokens: int
    cached_tokens: int
    generated: int
    seconds: float
    place: int = 0
    expected: float = 0.0


class BackendStatus(Struct, frozen=True):
    """What status pages and metrics show of a backend, as far as it is known.

    `cache_tiers` are its caches of prompts, the fastest first. `upstreams` are the servers between
    which it chooses, () for a single one. `waiting_requests` wait for the model, and `requests` are
    these and those that run, where an engine of this process knows them. `seconds` of it are those
    that each tenant has used lately. It has computed `batches`, which had `batch_parts` of requests
    together.
    """

    cache_tiers: tuple[CacheTier, ...] = ()
    upstreams: Sequence[UpstreamState] = ()
    waiting_requests: int = 0
    batches: int = 0
    batch_parts: int = 0
    requests: Sequence[RequestState] = ()
    seconds: Mapping[str, float] = {}


class Concurrency(Struct, frozen=True):
    """How many requests share a model's context: `initial`, and up to `maximum` on demand.

    A recurrent model needs memory for each request's state, so its context stays at `initial`.
    """

    initial: int = 1
    maximum: int = 1


ONE = Concurrency()


class ModelKind(StrEnum):
    """What a model makes: text, vectors of texts, or scores of documents."""

    TEXT = "completion"
    EMBEDDING = "embedding"
    RERANKING = "rerank"


class ModelInfo(Struct, frozen=True):
    """The model behind a backend; `context_size` in tokens, 0 if unknown.

    `trained_tools` are the names of the only tools that it should be offered; None for all tools.
    The model was trained on them, and others make it worse. `vision`: whether it sees images, None
    if that is unknown. `raw_prompts`: whether it accepts raw prompts and grammars, and continues
    messages. `checks_calls`: whether it enforces the schemas of tools in its calls. `kind` is what
    it makes; a provider's is not known, and counts as text. `selector` names it in the form of
    `model.provider` if another model may take over, else it is "".

    `count_error` is the mean relative error of token counts: None if they are exact, 1.0 for
    estimates that were not compared with exact counts yet. `embedder` is None for a model that only
    writes text, `text_model` for one that does not run in this process.
    """

    id: str
    backend: str
    context_size: int
    owned_by: str = "shepherd"
    trained_tools: frozenset[str] | None = None
    vision: bool | None = None
    raw_prompts: bool = False
    checks_calls: bool = False
    kind: ModelKind = ModelKind.TEXT
    selector: str = ""
    count_error: float | None = None
    embedder: Embedder | None = None
    text_model: TextModel | None = None


class Memory(Struct, frozen=True):
    """Bytes of the CPU's memory and of the GPUs' own."""

    ram: int = 0
    vram: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.ram + other.ram, self.vram + other.vram)

    def __sub__(self, other: "Memory") -> "Memory":
        """The rest, at least 0 each."""
        return Memory(max(0, self.ram - other.ram), max(0, self.vram - other.vram))

    def __str__(self) -> str:
        gpus = f" and {self.vram / 2**30:,.1f} GiB on GPUs" if self.vram else ""
        return f"{self.ram / 2**30:,.1f} GiB of memory{gpus}"

    def fits(self, limit: "Memory") -> bool:
        """Whether both are at most those of `limit`."""
        return self.ram <= limit.ram and self.vram <= limit.vram


class Prefilled(AbstractAsyncContextManager["Prefilled"]):
    """A session whose prompt is accepted and ready to generate.

    Leaving the context always releases its resources (a slot, a connection).
    """

    prompt_tokens: int
    cached_tokens: int
    logprobs: list[TokenLogprob] | None = None
    """Those of the content that was sent so far; None as in `Generation`."""
    wants_pieces: bool = True
    """Whether someone reads the text as it grows; if not, it may come together at the end."""

    def release(self) -> None:
        """Release the resources; leaving the context does it too."""

    @property
    def tokens(self) -> Sequence[int]:
        """The numbers of the prompt's and the answer's tokens; () if images or others hide them."""
        return ()

    @property
    def generated(self) -> Sequence[int]:
        """The numbers of the answer's tokens so far; () if they are unknown."""
        return ()

    @property
    def prompt_logprobs(self) -> Sequence[TokenLogprob]:
        """Those of a measured prompt; the first token's is not a number, as none precedes it."""
        return ()

    @property
    def prompt_text(self) -> str:
        """The prompt as the model reads it, with its control tokens; "" if it is unknown."""
        return ""

    @property
    def unenforced(self) -> Sequence[str]:
        """The keywords of the answer's JSON schema that it may break."""
        return ()

    @property
    def sampling(self) -> Sampling | None:
        """The parameters as they are applied, defaults included; None if they are unknown."""
        return None

    def stats(self) -> Stats:
        """The measures so far."""
        return Stats(self.prompt_tokens, self.cached_tokens)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Backend(ABC):
    """A model that continues sessions; re-entrant, so that one instance serves many requests.

    It never evicts and never prints. If the awaiting task is cancelled, it stops the work at once
    and releases all resources.
    """

    @property
    @abstractmethod
    def info(self) -> ModelInfo:
        """The model that answers."""

    @property
    def alive(self) -> bool:
        """Whether it can still answer; False after a permanent failure or once closed."""
        return True

    async def reachable(self) -> bool:
        """Whether it would answer now; an API backend sends a request every few seconds."""
        return self.alive

    def when_moved(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` from now on each time that another model takes over.

        It is called before that model gets a request. Returns a function that removes the listener.
        """
        _ = listener  # this model never changes
        return lambda: None

    def take_warning(self) -> str:
        """A warning for the user about opening the backend, "" without one; returned once.

        A warning that no caller takes is sent with the next request.
        """
        return ""

    @property
    def status(self) -> BackendStatus:
        """Its caches, its servers and its queue."""
        return BackendStatus()

    def note_lease(self, lease: Lease) -> None:
        """Keep a session's prompt by what its owner says; only an engine of its own cares."""
        _ = lease  # a provider keeps what it likes

    @abstractmethod
    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        """Bring the session's prompt into the context (a no-op for API backends).

        Raises ContextFullError if it does not fit, InvalidRequestError when a parameter is wrong,
        BusyError when the queue is full. Nothing has been generated by then. When the callback
        returns False the handle is returned and generating ends at once as CANCELLED.
        """

    async def prefill_choices(
        self, session: Session, callback: EventCallback, count: int
    ) -> list[Prefilled]:
        """`prefill_session` for several answers to one prompt, each sampled with its own seed.

        A backend that can share the prompt overrides this. Raises the errors of `prefill_session`,
        and then holds nothing.
        """
        handles: list[Prefilled] = []
        async with AsyncExitStack() as held:
            for index in range(count):
                seed = choice_seed(session.sampling.seed, index)
                seeded = replace(session, sampling=replace(session.sampling, seed=seed))
                handle = await self.prefill_session(seeded, callback)
                held.push_async_exit(handle)
                handles.append(handle)
            held.pop_all()  # no error: the caller releases them
        return handles

    @abstractmethod
    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """Generate the answer; `max_tokens` 0 means as many as fit.

        Sends text events, STATS, STOP and one TOOL_CALL per call. Does not change the session.
        Raises ContextFullError if the context is full before anything was generated.
        """

    @abstractmethod
    async def count_message_tokens(self, session: Session, message: Message) -> int:
        """The number of tokens of `message` in this session's prompt: exact or an estimate."""

    @abstractmethod
    async def aclose(self) -> None:
        """End all work and free the model or connection."""

    async def count_session_tokens(self, session: Session) -> int:
        """The number of tokens of the session's whole prompt: exact or an estimate."""
        return sum([await self.count_message_tokens(session, m) for m in session.messages])

    async def generate_from_session(
        self, session: Session, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """`prefill_session` and `generate_from_prefilled` in one."""
        async with await self.prefill_session(session, callback) as prefilled:
            return await self.generate_from_prefilled(prefilled, callback, max_tokens)


class Observer:
    """Stands beside a backend at work; a subclass limits, counts or times what it does.

    Turns and servers use a backend through one of these, so that nothing has to stand in for it.
    """

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """The prompts of `count` answers, held until the context ends; see `prefill_choices`."""
        async with AsyncExitStack() as held:
            if count == 1:
                prompts = [await backend.prefill_session(session, callback)]
            else:
                prompts = await backend.prefill_choices(session, callback, count)
            for prompt in prompts:
                await held.enter_async_context(prompt)
            yield prompts

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """The answer to one of these prompts; see `generate_from_prefilled`."""
        return await backend.generate_from_prefilled(prompt, callback, max_tokens)


def new_images(messages: Sequence[Message]) -> Iterator[Image]:
    """The images since the last answer; a model has seen earlier ones already."""
    for message in reversed(messages):
        if message.role is Role.ASSISTANT:
            return
        yield from message.images


def earlier_images(messages: Sequence[Message]) -> list[Image]:
    """The images before the last answer."""
    new_ids = [id(image) for image in new_images(messages)]
    every = (image for message in messages for image in message.images)
    return [image for image in every if id(image) not in new_ids]


def cannot_see(model: str) -> ImageError:
    """The error for images that are sent to a model that reads only text."""
    return ImageError(
        f"{model} can't see images. Leave them out, or ask a model that can: "
        "`shepherd provider add` connects one."
    )


def refuse_images(messages: Sequence[Message], model: str) -> None:
    """Raise ImageError if a new image is sent to a model that reads only text."""
    if any(new_images(messages)):
        raise cannot_see(model)
