"""`/metrics`: what the server counted is what the clients did."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scripts.sentences import ROOT
from shepherd.backends.base import BackendStatus, CacheTier, ModelInfo, UpstreamState
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import Stats
from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.operation.metrics import MAX_MODELS, OTHER, Metrics
from shepherd.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.engine import engine
from tests.server.harness import HI, RunningServer, Scripted, scripted
from tests.server.held import HeldBackend

PLAIN: Mapping[str, Any] = {"model": "default", "messages": HI}
WIRES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "openai": ("/v1/chat/completions", PLAIN),
    "anthropic": ("/v1/messages", {**PLAIN, "max_tokens": 100}),
    "responses": ("/v1/responses", {"model": "default", "input": "hi"}),
    "gemini": (
        "/v1beta/models/default:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
    "ollama": ("/api/chat", {**PLAIN, "stream": False}),
    "embeddings": ("/v1/embeddings", {"model": "default", "input": "hi"}),
}


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """The values of all samples by their names and labels."""

    def of(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name with these labels, 0 for none."""
        return sum(
            value for (n, pairs), value in self.items() if n == name and labels.items() <= pairs
        )


def read(server: RunningServer[Any], **headers: str) -> Samples:
    answer = httpx.get(f"{server.url}/metrics", headers=headers, timeout=PATIENCE)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = Samples()
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            place = sample.name, frozenset(sample.labels.items())
            assert place not in samples
            samples[place] = sample.value
    return samples


def post(server: RunningServer[Any], path: str, body: Mapping[str, Any]) -> int:
    return httpx.post(server.url + path, json=body, timeout=PATIENCE).status_code


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted("chunk: 3\ntext: one two three") as running:
        yield running


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_counts_its_requests_and_tokens(server: Scripted, wire: str) -> None:
    path, body = WIRES[wire]
    assert [post(server, path, body) for _ in range(2)] == [200, 200]
    assert post(server, path, {"nothing": 1}) == 400
    samples, model = read(server), server.backend.info.id
    assert samples.of("shepherd_requests_total", wire=wire, model=model, status="200") == 2
    assert samples.of("shepherd_requests_total", wire=wire, status="400") == 1
    assert samples.of("shepherd_requests_total") == 3
    assert samples.of("shepherd_request_seconds_count", wire=wire) == 3
    assert samples.of("shepherd_tokens_total", wire=wire, model=model, kind="prompt") > 0
    if wire != "embeddings":
        assert samples.of("shepherd_tokens_total", wire=wire, kind="generated") > 0
        first = "shepherd_time_to_first_token_seconds"
        assert samples.of(f"{first}_count", wire=wire, model=model) == 2
        assert samples.of(f"{first}_bucket", wire=wire, le="+Inf") == 2
        assert samples.of("shepherd_time_between_tokens_seconds_count", model=model) > 0
        assert samples.of("shepherd_queue_wait_seconds_count", model=model) == 2


def test_tokens_are_those_that_the_answers_tell(server: Scripted) -> None:
    usages: list[dict[str, Any]] = []
    for _ in range(3):
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=PLAIN, timeout=PATIENCE)
        usages.append(answer.json()["usage"])
    samples = read(server)
    for kind, field in (("prompt", "prompt_tokens"), ("generated", "completion_tokens")):
        expected = sum(usage[field] for usage in usages)
        assert samples.of("shepherd_tokens_total", kind=kind) == expected


def test_streams_are_counted_by_how_they_end(server: Scripted) -> None:
    body = {**PLAIN, "stream": True}
    assert post(server, "/v1/chat/completions", body) == 200
    assert read(server).of("shepherd_requests_total", status="200", wire="openai") == 1
    with scripted("text: one\nerror: broken") as broken:
        answer = httpx.post(f"{broken.url}/v1/chat/completions", json=body, timeout=PATIENCE)
        assert answer.status_code == 200
        event = json.loads(answer.text.strip().rpartition("data: ")[2])
        assert "error" in event
        samples = read(broken)
        assert samples.of("shepherd_requests_total", wire="openai", status="200") == 0
        assert samples.of("shepherd_requests_total", wire="openai") == 1


def test_a_client_that_hangs_up_counts_as_499_and_runs_no_more() -> None:
    with RunningServer(HeldBackend(hold_generation=True)) as server:
        with server.connect_and_post({"messages": HI, "stream": True}) as sock:
            assert b"200 OK" in sock.recv(65_536)
            samples = read(server)
            assert samples.of("shepherd_requests_running") == 2
            assert samples.of("shepherd_connections") == 2
        server.until(lambda: server.tasks == 0)
        samples = read(server)
        assert samples.of("shepherd_requests_total", wire="openai", status="499") == 1
        assert samples.of("shepherd_tokens_total", wire="openai", kind="prompt") == 1
        assert samples.of("shepherd_requests_running") == 1


def test_requests_that_can_not_be_served_are_counted(server: Scripted) -> None:
    server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 15_000 + b"\r\nY: " + b"x" * 15_000)
    server.raw(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n")
    samples = read(server)
    assert samples.of("shepherd_requests_total", wire="server", model="") == 2
    assert samples.of("shepherd_requests_total", status="431") == 1


def test_the_state_of_the_server_is_there(server: Scripted) -> None:
    samples, model = read(server), server.backend.info.id
    assert samples.of("shepherd_models_loaded") == 1
    assert samples.of("shepherd_connections") >= 1
    assert ("shepherd_queue_requests", frozenset({("model", model)})) in samples
    for memory in ("memory", "vram"):
        assert (f"shepherd_model_{memory}_bytes", frozenset({("model", model)})) in samples
    assert samples.of("process_resident_memory_bytes") > 0


def test_totals_have_the_names_of_llama_cpps_server(server: Scripted) -> None:
    samples = read(server)
    read_tokens = samples.of("shepherd_tokens_total", kind="prompt")
    cached = samples.of("shepherd_tokens_total", kind="cached")
    generated = samples.of("shepherd_tokens_total", kind="generated")
    assert samples.of("llamacpp:prompt_tokens_total") == read_tokens - cached
    assert samples.of("llamacpp:prompt_tokens_cached_total") == cached
    assert samples.of("llamacpp:tokens_predicted_total") == generated
    assert samples.of("llamacpp:tokens_predicted_seconds_total") == samples.of(
        "shepherd_work_seconds_total", kind="generated"
    )
    assert samples.of("llamacpp:requests_processing") == 0
    assert samples.of("llamacpp:requests_deferred") == 0


def test_speeds_are_those_since_the_last_reading() -> None:
    metrics = Metrics(lambda: ["m"])

    def speeds() -> tuple[float, ...]:
        values = {family.name: family.samples for family in metrics.collect()}
        names = ("prompt_tokens_seconds", "predicted_tokens_seconds")
        return tuple(values[f"llamacpp:{name}"][0].value for name in names)

    assert speeds() == (0, 0)
    for reading, writing in ((1.0, 2.0), (4.0, 0.5)):
        work = Stats(
            prompt_tokens=50,
            cached_tokens=10,
            completion_tokens=20,
            prefill_seconds=reading,
            decode_seconds=writing,
        )
        metrics.count_work("openai", "m", work)
        assert speeds() == (40 / reading, 20 / writing)
        assert speeds() == (0, 0)


def test_names_that_clients_invent_add_no_series() -> None:
    metrics = Metrics(lambda: ["known"])
    labels = {metrics.label(name) for name in ("known", "", *(f"x{n}" for n in range(1000)))}
    assert labels == {"known", "", OTHER}
    crowd = Metrics(lambda: [f"m{n}" for n in range(10 * MAX_MODELS)])
    assert len({crowd.label(f"m{n}") for n in range(10 * MAX_MODELS)}) <= MAX_MODELS + 1


def test_a_key_needs_the_scope_admin_unless_metrics_are_open(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    user = keys.add("user")
    admin = keys.add("admin", lambda key: _with_scopes(key, KeyScope.ADMIN))

    def status(server: Scripted, key: str = "") -> int:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.get(f"{server.url}/metrics", headers=headers, timeout=PATIENCE).status_code

    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, ServerSettings(port=0), keys) as server:
        assert [status(server), status(server, user), status(server, admin)] == [401, 403, 200]
        named = read(server, Authorization=f"Bearer {admin}")
        assert named.of("shepherd_requests_total", status="403") == 1
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, ServerSettings(port=0, metrics_open=True), keys) as server:
        assert status(server) == 200
        assert httpx.get(f"{server.url}/stats", timeout=PATIENCE).status_code == 401


def _with_scopes(key: Any, *scopes: KeyScope) -> Any:
    from msgspec.structs import replace

    return replace(key, scopes=frozenset(scopes))


class Cached(ScriptedBackend):
    """A backend with caches."""

    readings = 0

    @property
    def status(self) -> BackendStatus:
        self.readings += 1
        return BackendStatus(
            (CacheTier("memory", 1, 2, 3, 4, 5), CacheTier("disk", 6, 7, 8, 9, 10)),
            (UpstreamState("http://one"),),
        )


def test_caches_are_counted_by_tier() -> None:
    backend = Cached(parse_script("text: hi"))
    assert isinstance(backend.info, ModelInfo)
    with RunningServer(backend) as server:
        samples = read(server)
    assert backend.readings == 1  # an engine may have to be asked for it
    names = ("hits", "evictions")
    values = [samples.of(f"shepherd_cache_{name}_total", tier="disk") for name in names]
    assert values == [8, 10]
    assert samples.of("shepherd_cached_tokens_total", tier="memory") == 4
    assert samples.of("shepherd_cache_bytes", tier="memory") == 2
    assert samples.of("shepherd_cache_entries") == 7


@pytest.fixture(scope="module")
def labels() -> Mapping[str, frozenset[str]]:
    """The names of all samples, each with the names of its labels."""
    with RunningServer(Cached(parse_script("chunk: 3\ntext: one two three"))) as server:
        assert post(server, "/v1/chat/completions", PLAIN) == 200
        return {name: frozenset(label for label, _ in pairs) for name, pairs in read(server)}


def test_the_dashboard_reads_what_there_is(labels: Mapping[str, frozenset[str]]) -> None:
    dashboard = json.loads((ROOT / "config" / "grafana.json").read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    for query in queries:
        names = re.findall(r"[a-z]+_\w+(?=\{)", query)
        assert names, query
        grouped = re.findall(r"by \(([^)]*)\)", query)
        used = [*re.findall(r"(\w+)[!=]~?=?\"", query), *", ".join(grouped).split(", ")]
        known = {"job", ""}.union(*(labels[name] for name in names))
        assert set(used) <= known, query
        is_rate = [f"rate({name}" in query for name in names]
        assert is_rate == [name.endswith(("_total", "_bucket")) for name in names], query
    (variable,) = [v["query"] for v in dashboard["templating"]["list"] if v["name"] == "job"]
    assert re.findall(r"shepherd_\w+", variable["query"])[0] in labels
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_the_page_reads_what_there_is(labels: Mapping[str, frozenset[str]]) -> None:
    page = (ROOT / "shepherd" / "server" / "operation" / "admin.html").read_text("utf-8")
    names = set(re.findall(r'"((?:shepherd|process)_\w+)"', page))
    assert len(names) > 10
    known = labels.keys() | {name.removesuffix("_bucket") for name in labels}
    assert names <= known


def test_the_caches_of_an_engine_are_counted_as_its_answers_tell() -> None:
    body = {**PLAIN, "max_tokens": 5}
    with engine() as server:
        url = f"{server.url}/v1/chat/completions"
        usages = [httpx.post(url, json=body, timeout=PATIENCE).json()["usage"] for _ in range(2)]
        samples = read(server)
        prompt = {"prompt": "Hello", "max_tokens": 2, "n_predict": 2}
        assert post(server, "/v1/completions", prompt) == 200
        assert post(server, "/completion", prompt) == 200
        raw = read(server)
    for wire in ("completions", "llamacpp"):
        assert raw.of("shepherd_requests_total", wire=wire, status="200") == 1
        assert raw.of("shepherd_tokens_total", wire=wire, kind="generated") == 2
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert cached > 0
    assert samples.of("shepherd_tokens_total", kind="cached") == cached
    assert samples.of("shepherd_cached_tokens_total", tier="memory") == cached
    assert samples.of("shepherd_cache_hits_total", tier="memory") == 1
    generated = sum(usage["completion_tokens"] for usage in usages)
    assert samples.of("shepherd_tokens_total", kind="generated") == generated
    assert samples.of("llamacpp:n_decode_total") >= 2
    assert 0 < samples.of("llamacpp:n_busy_slots_per_decode") <= 1
    assert samples.of("llamacpp:n_tokens_max") >= max(usage["total_tokens"] for usage in usages) - 1
    assert samples.of("llamacpp:prompt_seconds_total") > 0
    assert samples.of("shepherd_queue_requests") == 0


def test_the_format_of_openmetrics_is_valid(server: Scripted) -> None:
    post(server, "/v1/chat/completions", PLAIN)
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = httpx.get(f"{server.url}/metrics", headers=headers, timeout=PATIENCE)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    parser: Any = import_module("prometheus_client.openmetrics.parser")
    names = {family.name for family in parser.text_string_to_metric_families(answer.text)}
    assert {"shepherd_requests", "shepherd_tokens", "shepherd_connections"} <= names
