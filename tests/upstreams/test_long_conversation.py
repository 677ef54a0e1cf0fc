"""Two thousand turns with calls against a window of 4,096 tokens, in each vendor's language.

The vendors count in their own way, 0.6 to 1.7 times what we begin with, and refuse what does not
fit in their own words. All turns are taken in a long run alone.
"""

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from shepherd.backends.api.backend import ApiBackend
from shepherd.events import CallbackEvent, Event, EventCallback, FinishReason
from shepherd.messages import ToolCall, ToolSpec
from shepherd.session import Session
from shepherd.tools.tool import ToolResult
from shepherd.turn import run_turn
from tests.backends.api.upstream import Upstream
from tests.examples import PROFILE
from tests.flat_events import flat
from tests.upstreams.asking import provider
from tests.upstreams.vendor import TOOL, Vendor
from tests.upstreams.vendor_anthropic import AnthropicVendor
from tests.upstreams.vendor_gemini import GeminiVendor
from tests.upstreams.vendor_ollama import OllamaVendor
from tests.upstreams.vendor_openai import ChatVendor, ResponsesVendor

WINDOW, ALL, SOME = 4096, 2000, 64
TURNS = ALL if PROFILE == "long" else SOME
QUARTERS = 4
READ = ToolSpec(
    TOOL,
    "Read a file and return its text with numbers of lines.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
VENDORS: dict[str, tuple[Callable[[], Vendor], dict[str, Any]]] = {
    "openai": (lambda: ChatVendor(WINDOW, 0.45, 50), {"dialect": "strict"}),
    "openai-responses": (lambda: ResponsesVendor(WINDOW, 0.16, 50), {"context_size": WINDOW}),
    "anthropic": (lambda: AnthropicVendor(WINDOW, 0.4, 50), {}),
    "gemini": (lambda: GeminiVendor(WINDOW, 0.2, 50), {}),
    "ollama": (lambda: OllamaVendor(WINDOW, 0.3, 50), {}),
}


@dataclass
class Reader:
    """Gives files of many sizes, in letters, signs and other scripts."""

    async def run(
        self, call: ToolCall, output_bytes: int | None = None, on_event: EventCallback | None = None
    ) -> ToolResult:
        _, number, part = str(call.arguments["path"]).split("-")
        line = ("if (a[i] != 0x7f) {", "Köln liegt am Rhein. ", "日本語の行 ")[int(number) % 3]
        size = 100 + (int(number) * 37) % 900
        text = f"R{number}-{part} " + line * (size // len(line))
        return ToolResult(text[:output_bytes])


@dataclass(frozen=True)
class Work:
    """What was done until some turn."""

    requests: int
    bytes: int
    messages: int

    def since(self, before: "Work") -> "Work":
        return Work(
            self.requests - before.requests,
            self.bytes - before.bytes,
            self.messages - before.messages,
        )


@dataclass
class Talk:
    """A conversation with a vendor, and what was measured of it at the end of each quarter."""

    vendor: Vendor
    upstream: Upstream
    backend: ApiBackend
    session: Session
    errors: list[str] = field(default_factory=list[str])
    evictions: int = 0
    afresh: int = 0
    longest: int = 0
    work: list[Work] = field(default_factory=list[Work])
    objects: list[int] = field(default_factory=list[int])

    async def turn(self, number: int) -> None:
        """Ask, and see to it that the answer is the one to this question."""
        before = self.vendor.afresh
        prompt = f"Q{number} what is in there? " + "Please look again. " * (number % 5)
        outcome = await run_turn(self.session, prompt, self.backend, Reader(), self._listen)
        assert self.vendor.refused == []
        assert outcome.finish_reason is FinishReason.STOP
        assert self.session.messages[-1].content.startswith(f"A{number} ")
        self.afresh += self.vendor.afresh > before
        self.longest = max(self.longest, len(self.session.messages))
        self.upstream.requests.clear()

    def measure(self) -> None:
        self.work.append(Work(self.vendor.requests, self.vendor.bytes, self.vendor.messages))
        if TURNS == ALL:
            gc.collect()
            self.objects.append(len(gc.get_objects()))

    def _listen(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if kind is CallbackEvent.ERROR or name == "warning":
            self.errors.append(content)
        self.evictions += name == "eviction"
        return True


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", VENDORS)
async def test_a_conversation_never_ends(kind: str) -> None:
    """No invalid request, no error, no growth, and late turns cost what early ones did.

    Evictions come seldom: what vendors have read is of use again in most turns.
    """
    make, settings = VENDORS[kind]
    turns = TURNS
    vendor = make()
    async with Upstream(vendor) as upstream:
        backend = await provider(kind, upstream.url, model=vendor.model, **settings)
        session = Session("Be brief. " * 20, tools=[READ], thinking=True)
        talk = Talk(vendor, upstream, backend, session)
        for quarter in range(QUARTERS):
            for number in range(turns * quarter // QUARTERS, turns * (quarter + 1) // QUARTERS):
                await talk.turn(number)
            talk.measure()
        await backend.aclose()
    assert talk.errors == []
    assert turns // 50 < talk.evictions <= 0.4 * turns
    assert talk.afresh <= 0.4 * turns
    assert vendor.overflows <= turns // 5
    assert 8 < len(session.messages) <= talk.longest < 200
    assert backend.window.size == WINDOW
    second, last = talk.work[1].since(talk.work[0]), talk.work[3].since(talk.work[2])
    assert turns < 100 or last.requests <= 1.1 * second.requests
    assert turns < 100 or last.bytes <= 1.2 * second.bytes
    assert turns < 100 or last.messages <= 1.2 * second.messages
    assert second.requests <= 2.2 * turns // QUARTERS
    if turns == ALL:
        assert talk.objects[3] < talk.objects[2] + turns // QUARTERS
    figures = (vendor.requests, vendor.overflows, talk.evictions, talk.afresh, talk.longest)
    sys.stderr.write(
        f"{kind}: {figures} {talk.objects} {talk.work[-1]} {backend.info.count_error}\n"
    )
