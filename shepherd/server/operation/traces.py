"""Traces with OpenTelemetry, for servers that the environment tells where to send them."""

import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shepherd.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger(__name__)
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Span(Struct, frozen=True, eq=False):
    """One span of OpenTelemetry; without one it does nothing."""

    span: Any = None

    def note(self, **attributes: str | float) -> None:
        """Add attributes; `__` in a name stands for a dot."""
        if self.span is not None:
            self.span.set_attributes({k.replace("__", "."): v for k, v in attributes.items()})

    def fail(self, description: str) -> None:
        """Mark it as failed."""
        if self.span is not None:
            from opentelemetry.trace import Status, StatusCode

            self.span.set_status(Status(StatusCode.ERROR, description))


NO_SPAN = Span()


class Traces:
    """The spans of a server; nothing is registered globally."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("shepherd", __version__)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Traces | None":
        """Traces to where `OTEL_*` says, None if it says nothing or the package is missing."""
        exporters = env.get(_EXPORTERS, "")
        is_requested = bool(exporters) or any(env.get(name) for name in _ENDPOINTS)
        is_disabled = exporters == "none" or env.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if is_disabled or not is_requested:
            return None
        # the parent first: `find_spec` imports it, and fails if it is missing
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
            logger.warning("OTEL_* asks for traces: install opentelemetry-sdk and an exporter")
            return None
        return cls._exporting(exporters or "otlp", env)

    @classmethod
    def _exporting(cls, exporters: str, env: Mapping[str, str]) -> "Traces":
        """Traces that go to these exporters, such as `otlp,console`."""
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        attributes = env.get("OTEL_RESOURCE_ATTRIBUTES", "")
        has_name = "OTEL_SERVICE_NAME" in env or "service.name" in attributes
        # what is passed here would win over the user's name for the service
        resource = Resource.create({} if has_name else {SERVICE_NAME: "shepherd"})
        provider = TracerProvider(resource=resource)
        for name in filter(None, map(str.strip, exporters.split(","))):
            exporter = _exporter(name, env)
            if exporter is not None:
                provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    @contextmanager
    def request(self, headers: Mapping[str, str], method: str) -> Generator[Span]:
        """The span of a request, below that of its `traceparent`; inner spans are below it."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract(dict(headers))
        token = _current_traces.set(self)  # `span` then adds spans below this one
        try:
            with self._tracer.start_as_current_span(
                "request",
                context,
                kind=SpanKind.SERVER,
                attributes={"http.request.method": method},
                record_exception=False,  # it could have texts of the conversation
            ) as span:
                yield Span(span)
        finally:
            _current_traces.reset(token)

    @contextmanager
    def inner(self, name: str, attributes: Mapping[str, str]) -> Generator[Span]:
        """A span below the current one."""
        with self._tracer.start_as_current_span(
            name, attributes=dict(attributes), record_exception=False
        ) as span:
            yield Span(span)

    def close(self) -> None:
        """Send what was not sent yet; waits for that."""
        self._provider.shutdown()


_current_traces: ContextVar[Traces | None] = ContextVar("traces", default=None)


@contextmanager
def span(name: str, **attributes: str) -> Generator[Span]:
    """A span below that of the request, if requests are traced; `__` in a name is a dot."""
    traces = _current_traces.get()
    if traces is None:
        yield NO_SPAN
        return
    with traces.inner(name, {k.replace("__", "."): v for k, v in attributes.items()}) as inner:
        yield inner


def _exporter(name: str, env: Mapping[str, str]) -> "SpanExporter | None":
    """The exporter of that name; None, with a line in the log, if it is not installed."""
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if name != "otlp":
        logger.warning("Traces can't be sent by %r; use otlp or console", name)
        return None
    protocol = env.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    kind = "grpc" if protocol == "grpc" else "http"
    try:
        module = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter")
    except ImportError:
        logger.warning("Traces are not sent: install opentelemetry-exporter-otlp-proto-%s", kind)
        return None
    exporter: SpanExporter = module.OTLPSpanExporter()
    return exporter
