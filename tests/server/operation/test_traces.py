"""Traces: the spans of requests, and that nothing is imported where no traces are wanted."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.operation.traces import Traces
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, Scripted

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def server(exporter: InMemorySpanExporter, tmp_path: Path) -> Iterator[Scripted]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    backend = ScriptedBackend(parse_script("text: one two"))
    context = ToolContext(cwd=tmp_path, spill_dir=tmp_path)
    tools = ToolRunner(ToolRegistry(), PermissionPolicy(tmp_path), DenyingApprover(), context)
    with RunningServer(
        backend, ServerSettings(port=0), tools=tools, traces=Traces(provider)
    ) as running:
        yield running


def spans(server: Scripted, exporter: InMemorySpanExporter, count: int) -> dict[str, ReadableSpan]:
    server.until(lambda: len(exporter.get_finished_spans()) >= count)
    return {span.name: span for span in exporter.get_finished_spans()}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_request_has_the_spans_of_its_work(
    server: Scripted, exporter: InMemorySpanExporter
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    body = {"messages": HI, "stream": True}
    httpx.post(server.url + CHAT, json=body, headers=headers, timeout=PATIENCE)
    found = spans(server, exporter, 3)
    request = found["request"]
    assert request.parent is not None
    assert request.context is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    for name in ("prefill", "decode"):
        parent = found[name].parent
        assert parent is not None
        assert parent.span_id == request.context.span_id
    told = attributes(request)
    assert told["http.response.status_code"] == 200
    assert told["shepherd.wire"] == "openai"
    assert told["shepherd.request_id"] == "mine"
    assert attributes(found["prefill"])["gen_ai.usage.input_tokens"] > 0
    assert attributes(found["decode"])["gen_ai.usage.output_tokens"] > 0
    texts = str([attributes(span) for span in found.values()])
    assert "one two" not in texts


def test_a_tool_has_a_span(server: Scripted, exporter: InMemorySpanExporter) -> None:
    body: dict[str, Any] = {"name": "nothing", "arguments": {}}
    httpx.post(f"{server.url}/v1/tools/execute", json=body, timeout=PATIENCE)
    assert attributes(spans(server, exporter, 2)["tool"])["gen_ai.tool.name"] == "(unknown)"


def test_a_failed_request_is_marked(server: Scripted, exporter: InMemorySpanExporter) -> None:
    assert httpx.get(f"{server.url}/nothing", timeout=PATIENCE).status_code == 404
    request = spans(server, exporter, 1)["request"]
    assert attributes(request)["http.response.status_code"] == 404


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"OTEL_SERVICE_NAME": "x"},
        {"OTEL_TRACES_EXPORTER": "none", OTLP: "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", OTLP: "http://127.0.0.1:1"},
    ],
)
def test_without_a_destination_there_are_no_traces(env: dict[str, str]) -> None:
    assert Traces.from_env(env) is None


def test_the_environment_names_the_exporter(caplog: pytest.LogCaptureFixture) -> None:
    traces = Traces.from_env({"OTEL_TRACES_EXPORTER": "console"})
    assert traces is not None
    traces.close()
    unknown = Traces.from_env({"OTEL_TRACES_EXPORTER": "zipkin"})
    assert unknown is not None
    unknown.close()
    assert "use otlp or console" in caplog.text


def test_nothing_is_imported_without_a_destination() -> None:
    program = (
        "import sys; import shepherd.server.app; from shepherd.server.operation.traces import "
        "Traces; assert Traces.from_env({}) is None; "
        "sys.exit(any(n.startswith('opentelemetry.sdk') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
