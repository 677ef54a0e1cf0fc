"""Providers opened from the settings: connecting, local ones, falling back."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shepherd.backends.api.http.failures import RequestTarget, refused, unreachable
from shepherd.backends.base import Backend, BackendStatus, CacheTier, Generation, Prefilled
from shepherd.backends.connect import adapter_for, base_url_for, endpoint_of, examine
from shepherd.backends.failover import Candidate, FallbackBackend
from shepherd.backends.inprocess.template import CHATML
from shepherd.backends.opening import open_backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider import PROVIDER_TYPES, make_provider
from shepherd.config.provider_book import Ephemeral, ProviderBook
from shepherd.config.settings import Config
from shepherd.errors import BackendError, ConfigError, UnreachableError
from shepherd.events import (
    CallbackEvent,
    Event,
    EventCallback,
    Text,
    Topic,
    ignore_events,
)
from shepherd.messages import Message
from shepherd.session import Session
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.backends.llamacpp.tiny import write_llama
from tests.backends.openai_server import chunk, openai_server
from tests.flat_events import flat

Heard = list[tuple[CallbackEvent, str, str]]


def book(tmp_path: Path, **providers: Mapping[str, object]) -> ProviderBook:
    made = ProviderBook(Paths.from_env({"HOME": str(tmp_path)}), {})
    for name, values in providers.items():
        made.store.save(make_provider(name, values))
    return made


def settings(tmp_path: Path, **model: object) -> Config:
    overrides = {f"model.{key}": value for key, value in model.items()}
    return load_config(tmp_path, {"HOME": str(tmp_path)}, overrides)


@pytest.fixture
def gone() -> Iterator[str]:
    """The address of a server that is not there; nobody else can take it meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def ask(backend: Backend, heard: Heard | None = None) -> str:
    def listen(event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if heard is not None:
            heard.append((kind, content, name))
        return True

    session = Session(messages=[Message.user("hello")])
    return (await backend.generate_from_session(session, listen)).message.content


async def test_a_provider_answers_with_its_key_and_context(tmp_path: Path) -> None:
    async with openai_server("Good day.", context=4096) as server:
        work = {"type": "openai", "base_url": server.url, "api_key": "file"}
        providers = book(tmp_path, work={**work, "headers": {"X-Team": "blue"}})
        providers.secrets.store("work", "sk-1234567890", "file")
        backend = await open_backend(settings(tmp_path, provider="work"), providers=providers)
        assert (backend.info.id, backend.info.context_size) == ("small", 4096)
        assert await ask(backend) == "Good day."
        await backend.aclose()
        assert {r.headers["authorization"] for r in server.requests} == {"Bearer sk-1234567890"}
        assert {r.headers["x-team"] for r in server.requests} == {"blue"}


async def test_a_models_effort_in_this_process(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf", template=CHATML)
    asking = Session(messages=[Message.user("hello")])
    counts: list[int] = []
    for effort in ("none", "", "low"):
        mine = {"type": "llamacpp", "model": str(path), "effort": effort}
        providers = book(tmp_path, mine=mine)
        backend = await open_backend(settings(tmp_path, provider="mine"), providers=providers)
        for asking.thinking in (False, True):
            counts.append(await backend.count_session_tokens(asking))
        handle = await backend.prefill_session(asking, ignore_events)
        async with handle:
            assert handle.prompt_tokens == counts[-1]
        await backend.aclose()
    off, on = counts[2:4]
    assert off < on
    assert counts == [off, off, off, on, on, on]


async def test_the_setting_goes_before_what_the_server_says(tmp_path: Path) -> None:
    async with openai_server("x") as server:
        work = {"type": "openai", "base_url": server.url, "context_size": 1000}
        providers = book(tmp_path, work=work)
        backend = await open_backend(settings(tmp_path, provider="work/m"), providers=providers)
        assert (backend.info.id, backend.info.context_size) == ("m", 1000)
        await backend.aclose()
        flag = {"model.provider": "work", "llamacpp.context_size": 2000}
        config = load_config(tmp_path, {"HOME": str(tmp_path)}, flag)
        backend = await open_backend(config, providers=providers)
        assert backend.info.context_size == 2000
        await backend.aclose()


async def test_a_local_file_is_a_provider_too(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("text: from the file")
    providers = book(tmp_path, file={"type": "llamacpp", "model": f"script:{tmp_path / 's.txt'}"})
    backend = await open_backend(settings(tmp_path, provider="file"), providers=providers)
    assert await ask(backend) == "from the file"


async def test_a_provider_that_is_gone_is_unreachable(tmp_path: Path, gone: str) -> None:
    providers = book(tmp_path, work={"type": "openai", "base_url": gone, "model": "m"})
    with pytest.raises(UnreachableError, match="work can't be reached"):
        await open_backend(settings(tmp_path, provider="work"), providers=providers)


async def trouble(config: Config, providers: ProviderBook) -> str:
    """What keeps the provider from answering, "" for nothing."""
    try:
        async with AsyncExitStack() as stack:
            backend = await open_backend(config, providers=providers)
            stack.push_async_callback(backend.aclose)
            await ask(backend)
    except BackendError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("models", "answer", "stored", "given"),
    [
        (["m1", "m2"], 200, "`shepherd provider set openai model NAME`: m1, m2",
         "choose one with `--model NAME`: m1, m2"),
        ([], 200, "`shepherd provider set openai model NAME`.", "name one with `--model NAME`."),
        (["m1"], 401, "`shepherd provider set openai api-key -`.", "`--api-key -` asks for it."),
        (["m1"], 404, "`shepherd provider test openai` lists its models.",
         "Correct `--model NAME` or `--api-base URL`."),
    ],
)  # fmt: skip
async def test_the_advice_fits_where_the_provider_is_described(
    tmp_path: Path, models: list[str], answer: int, stored: str, given: str
) -> None:
    def reply(request: Received) -> Reply:
        if request.path == "/v1/models":
            return Reply({"data": [{"id": model} for model in models]})
        return Reply("", answer)

    async with Upstream(reply) as upstream:
        openai = make_provider("openai", {"type": "openai", "base_url": upstream.url})
        for given_too, advice, other in ((None, stored, given), (Ephemeral(openai), given, stored)):
            providers = ProviderBook(Paths.from_env({"HOME": str(tmp_path)}), {}, given_too)
            if given_too is None:
                providers.store.save(openai)
            told = await trouble(settings(tmp_path, provider="openai"), providers)
            assert advice in told
            assert other not in told


async def test_the_next_provider_answers_when_asked_for(tmp_path: Path, gone: str) -> None:
    async with openai_server("from the second") as server:
        providers = book(
            tmp_path,
            last={"type": "openai", "base_url": gone, "priority": 9},
            second={"type": "openai", "base_url": server.url, "priority": 5},
            work={"type": "openai", "base_url": gone, "model": "m", "priority": 7},
        )
        config = settings(tmp_path, provider="work", fallback=True)
        backend = await open_backend(config, providers=providers)
        heard: Heard = []
        assert await ask(backend, heard) == "from the second"
        assert backend.info.id == "small"
        kind, told, topic = heard[0]
        assert (kind, topic) == (CallbackEvent.SYSTEM, Topic.WARNING)
        assert "work can't be reached" in told
        assert told.endswith("Going on with second.")
        heard.clear()
        await ask(backend, heard)
        assert all(event is not CallbackEvent.SYSTEM for event, _, _ in heard)
        await backend.aclose()


class Unsteady(ScriptedBackend):
    """Can't be reached, before it has said anything or after."""

    def __init__(self, *, late: bool = False) -> None:
        super().__init__(parse_script("text: half an answer" if late else "text: never"), "first")
        self.late = late
        self.closed = False

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        if self.late:
            callback(Text("half"))
        raise UnreachableError("first can't be reached.")

    async def reachable(self) -> bool:
        return False

    async def aclose(self) -> None:
        self.closed = True


def candidates(*backends: Backend | BackendError) -> list[Candidate]:
    async def open_one(which: Backend | BackendError) -> Backend:
        if isinstance(which, BackendError):
            raise which
        return which

    return [
        Candidate(f"number {n}", lambda which=which: open_one(which))
        for n, which in enumerate(backends, start=1)
    ]


async def test_what_fails_at_the_question_is_asked_elsewhere() -> None:
    first, second = Unsteady(), ScriptedBackend(parse_script("text: second"), "second")
    backend = await FallbackBackend.open(candidates(first, BackendError("wrong key"), second))
    heard: Heard = []
    answers = await asyncio.gather(ask(backend, heard), ask(backend))
    assert answers == ["second", "second"]
    assert [text for event, text, _ in heard if event is CallbackEvent.SYSTEM] == [
        "first can't be reached. number 2 was skipped: wrong key. Going on with number 3.",
    ]
    assert (first.active, second.active) == (0, 0)
    assert backend.info.id == "second"
    await backend.aclose()
    assert first.closed


@pytest.mark.parametrize("late", [False, True], ids=["opening", "asking"])
async def test_one_notice_names_the_one_that_answers(late: bool) -> None:  # noqa: FBT001 - a case
    gone, wrong = UnreachableError("gone"), BackendError("There is no key.")
    first = Unsteady() if late else UnreachableError("first can't be reached.")
    last = ScriptedBackend(parse_script("text: last"), "last")
    backend = await FallbackBackend.open(candidates(first, wrong, gone, last, Unsteady()))
    heard: Heard = []
    for _ in range(2):
        assert await ask(backend, heard) == "last"
    [told] = [text for event, text, _ in heard if event is CallbackEvent.SYSTEM]
    assert told == (
        "first can't be reached. number 2 was skipped: There is no key. "
        "number 3 can't be reached either. Going on with number 4."
    )
    assert backend.info.selector == "number 4"
    await backend.aclose()


async def test_a_warning_that_was_taken_is_not_told_again() -> None:
    last = ScriptedBackend(parse_script("text: last"), "last")
    backend = await FallbackBackend.open(candidates(UnreachableError("gone"), last))
    assert backend.take_warning() == "gone. Going on with number 2."
    assert backend.take_warning() == ""
    heard: Heard = []
    await ask(backend, heard)
    assert all(event is not CallbackEvent.SYSTEM for event, _, _ in heard)


class Waited(ScriptedBackend):
    """Has a cache and a queue."""

    @property
    def status(self) -> BackendStatus:
        return BackendStatus((CacheTier("memory", 1, 2, 3, 4, 5),), waiting_requests=3)


async def test_its_status_is_that_of_the_one_that_answers() -> None:
    last = Waited(parse_script("text: last"), "last")
    backend = await FallbackBackend.open(candidates(UnreachableError("gone"), last))
    assert backend.status.waiting_requests == 3
    assert backend.status == last.status


async def test_half_an_answer_is_not_begun_again() -> None:
    second = ScriptedBackend(parse_script("text: second"), "second")
    backend = await FallbackBackend.open(candidates(Unsteady(late=True), second))
    with pytest.raises(UnreachableError):
        await ask(backend)
    assert second.requests == []


async def test_without_another_the_first_ones_trouble_is_told() -> None:
    backend = await FallbackBackend.open(candidates(Unsteady()))
    with pytest.raises(UnreachableError, match="first can't be reached"):
        await ask(backend)
    one, two = UnreachableError("one"), UnreachableError("two")
    with pytest.raises(UnreachableError, match="one"):
        await FallbackBackend.open(candidates(one, BackendError("x"), two))
    with pytest.raises(BackendError, match="wrong key"):
        await FallbackBackend.open(candidates(BackendError("wrong key"), Unsteady()))


@pytest.mark.parametrize("type", [t for t in PROVIDER_TYPES if t != "llamacpp"])
def test_every_type_has_a_adapter_and_an_address(type: str) -> None:
    adapter = adapter_for(type)
    if type in ("shepherd", "tensorrt"):
        with pytest.raises(ConfigError, match="--base-url"):
            base_url_for(type, "", adapter)
    else:
        assert base_url_for(type, "", adapter).startswith("http")


@pytest.mark.parametrize(
    ("type", "given", "used"),
    [
        ("openai", "http://host:1", "http://host:1/v1"),
        ("openai", "https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
        ("shepherd", "http://host:8000/", "http://host:8000/v1"),
        ("anthropic", "http://host:1/v1", "http://host:1"),
        ("gemini", "https://h/v1beta", "https://h"),
        ("ollama", "http://host:11434/api", "http://host:11434"),
        ("openai", "https://x.openai.azure.com/openai/v1?api-version=1",
         "https://x.openai.azure.com/openai/v1"),
        ("openai", "http://host:1/v1/chat/completions/", "http://host:1/v1"),
        ("openai", "http://host:1/chat/completions", "http://host:1/v1"),
        ("openai", "http://host:1/v1/chat", "http://host:1/v1"),
        ("openai", "http://host:1/v1/models", "http://host:1/v1"),
        ("openai", "http://host:1/v1/completions", "http://host:1/v1"),
        ("openai", "https://openrouter.ai/api/v1/Chat/Completions",
         "https://openrouter.ai/api/v1"),
        ("openai", "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
         "https://x.openai.azure.com/openai/deployments/d"),
        ("openai", "http://host:1/llm/chat", "http://host:1/llm/chat"),
        ("openai-responses", "https://api.openai.com/v1/responses", "https://api.openai.com/v1"),
        ("shepherd", "http://host:8000/v1/chat/completions", "http://host:8000/v1"),
        ("anthropic", "https://api.anthropic.com/v1/messages", "https://api.anthropic.com"),
        ("anthropic", "http://host:1/anthropic/v1/messages", "http://host:1/anthropic"),
        ("gemini", "https://h/v1beta/models/gemini-2.5-flash:generateContent", "https://h"),
        ("gemini", "https://h/v1beta/models", "https://h"),
        ("ollama", "http://host:11434/api/chat", "http://host:11434"),
    ],
)  # fmt: skip
def test_addresses_as_users_write_them(type: str, given: str, used: str) -> None:
    assert base_url_for(type, given, adapter_for(type, given)) == used


@pytest.mark.parametrize(
    ("type", "given", "owner"),
    [
        ("openai", "http://host:1/v1/messages", "anthropic"),
        ("anthropic", "http://host:1/v1/chat/completions", "openai"),
        ("gemini", "http://host:1/v1/responses", "openai"),
        ("openai", "http://host:11434/api/chat", "ollama"),
        ("openai", "https://h/v1beta/models/gemini-2.5-flash:generateContent", "gemini"),
    ],
)
def test_an_endpoint_of_another_api_is_said_to_be_one(type: str, given: str, owner: str) -> None:
    with pytest.raises(ConfigError, match=f"an endpoint of type {owner}.* of type {type}"):
        base_url_for(type, given, adapter_for(type, given))


@pytest.mark.parametrize("status", [403, 404, 405])
async def test_a_server_without_a_list_of_models_is_asked_a_question(
    tmp_path: Path, status: int
) -> None:
    def reply(request: Received) -> Reply:
        if request.path != "/v1/chat/completions":
            return Reply("no such page", status)
        return Reply.sse([chunk("OK", None), chunk("", "stop")])

    async with Upstream(reply) as up:
        work = make_provider("work", {"type": "openai", "base_url": up.url, "model": "m"})
        told = await examine(work, book(tmp_path))
        assert (told.models, told.model, told.listing, told.problem) == ((), "m", False, "")
        named = await examine(work.model_copy(update={"model": ""}), book(tmp_path))
        assert "model NAME" in named.problem


@pytest.mark.parametrize("status", [400, 404])
async def test_advice_never_names_the_command_that_failed(tmp_path: Path, status: int) -> None:
    async with Upstream(lambda _: Reply("no", status)) as up:
        work = make_provider("work", {"type": "openai", "base_url": up.url, "model": "m"})
        providers = book(tmp_path, work=work.model_dump(exclude_defaults=True))
        with pytest.raises(BackendError) as raised:
            await examine(work, providers)
    assert "provider test" not in str(raised.value)
    assert status != 404 or "provider set work base-url URL" in str(raised.value)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_without_a_key_says_that_none_was_sent(tmp_path: Path, status: int) -> None:
    async with Upstream(lambda _: Reply("who are you?", status)) as up:
        values = {"type": "openai", "base_url": up.url, "model": "m"}
        for headers, sent in (({}, False), ({"X-Api-Key": "k"}, True), ({"X-Team": "a"}, False)):
            providers = book(tmp_path, work={**values, "headers": headers})
            told = await trouble(settings(tmp_path, provider="work"), providers)
            assert ("No API key was sent." in told) is not sent
            assert ("api-key -" in told) is not (sent and status == 403)


@pytest.mark.parametrize(
    "secret", ["sk-very-secret\nsecond line", "sk-very-secrét", "sk-very\0secret"]
)
@pytest.mark.parametrize("place", ["key", "header"])
async def test_a_key_that_no_request_can_carry_is_not_shown(
    tmp_path: Path, secret: str, place: str
) -> None:
    values: dict[str, object] = {"type": "openai", "model": "m", "base_url": "http://127.0.0.1:9"}
    values |= {"api_key": "env:K"} if place == "key" else {"headers": {"X-Key": secret}}
    made = ProviderBook(Paths.from_env({"HOME": str(tmp_path)}), {"K": secret})
    with pytest.raises(ConfigError, match="provider bad has a line break or another") as raised:
        endpoint_of(make_provider("bad", values), made)
    assert "secr" not in str(raised.value)
    assert "X-Key" in str(raised.value) or place == "key"


def test_blanks_around_a_key_are_none_of_it(tmp_path: Path) -> None:
    made = ProviderBook(Paths.from_env({"HOME": str(tmp_path)}), {"K": " sk-very-secret\n"})
    provider = make_provider("good", {"type": "openai", "model": "m", "api_key": "env:K"})
    assert endpoint_of(provider, made).api_key == "sk-very-secret"


def test_a_sentence_of_the_provider_ends_once() -> None:
    failure = refused(RequestTarget("acme", "m", "http://h"), 404, "There is no m.")
    assert "There is no m. `shepherd provider test acme`" in str(failure.error)


def test_no_reason_shows_a_secret() -> None:
    asked = RequestTarget("acme", "m", "http://h", ("sk-very-secret",))
    for failure in (
        unreachable(asked, "Illegal header value b'Bearer sk-very-secret'"),
        refused(asked, 400, "a header is wrong: Bearer sk-very-secret"),
    ):
        assert "secret" not in f"{failure} {failure.error}"
