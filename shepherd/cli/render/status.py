"""The line below the prompt, and the sums for `/stats`."""

import time
from collections.abc import Mapping

from msgspec import Struct, field, structs
from rich.text import Text

from shepherd.backends.base import Backend
from shepherd.cli.terminal.paint import Glyphs, Piece
from shepherd.cli.terminal.sanitize import one_line
from shepherd.events import Stats
from shepherd.prices import Price, dollars, price_of
from shepherd.session import Session

MAX_NAME = 40


class Totals(Struct):
    """Sums over several generations; `turns` counts the answered messages."""

    turns: int = 0
    generations: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    cost: float | None = None
    """US dollars for those generations whose price is known."""

    def add(self, stats: Stats) -> None:
        """Add the measures of one generation."""
        self.generations += 1
        self.prompt_tokens += stats.prompt_tokens
        self.cached_tokens += stats.cached_tokens
        self.completion_tokens += stats.completion_tokens
        self.prefill_seconds += stats.prefill_seconds
        self.decode_seconds += stats.decode_seconds
        if stats.cost is not None:
            self.cost = (self.cost or 0.0) + stats.cost


class Status(Struct):
    """The data of the status line; numbers in tokens and tokens per second."""

    model: str = ""
    state: str = ""
    context_used: int = 0
    context_size: int = 0
    decode_speed: float = 0.0
    approve: str = "ask"
    thinking: bool = False
    directory: str = ""
    totals: Totals = field(default_factory=Totals)
    turn: Totals = field(default_factory=Totals)
    """Sums over the last turn."""
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])

    async def note_loaded(self, backend: Backend, session: Session) -> None:
        """Note a loaded model, which counts an existing conversation in its own tokens."""
        self.state = ""
        self.note_model(backend)
        used = await backend.count_session_tokens(session) if session.messages else 0
        self.context_used = session.ledger.context_used = used

    def note_model(self, backend: Backend) -> None:
        """Note that another model answers; its first answer tells its context use and speed."""
        self.model, self.context_size = backend.info.id, backend.info.context_size
        self.context_used, self.decode_speed = 0, 0.0

    def add_stats(self, stats: Stats) -> None:
        """Add the measures of a generation; those of a model behind a tool only count in sums."""
        is_behind_tool = bool(stats.provider)
        if stats.cost is None and not is_behind_tool:  # the answer did not tell its price
            price = price_of(self.prices, self.model)
            if price is not None:
                tokens = (stats.prompt_tokens, stats.cached_tokens, stats.completion_tokens)
                stats = structs.replace(stats, cost=price.cost(*tokens))
        self.totals.add(stats)
        self.turn.add(stats)
        if is_behind_tool:
            return
        self.context_used = stats.context_used
        self.context_size = stats.context_size or self.context_size  # 0: an API did not tell it
        self.decode_speed = stats.decode_speed

    def parts(self) -> list[str]:
        """The known values, the most important first."""
        name = short_name(self.model)
        parts = [f"{name} ({self.state})" if self.state else name]
        if self.context_size:
            share = 100 * self.context_used // self.context_size
            use = f"{compact(self.context_used)}/{compact(self.context_size)}"
            parts.append(f"{use} tokens ({share}%)")
        if self.decode_speed:
            parts.append(f"{self.decode_speed:.0f} tok/s")
        if self.totals.cost is not None:
            parts.append(dollars(self.totals.cost))
        parts.append(f"approve: {self.approve}")
        if self.thinking:
            parts.append("thinking")
        return [part for part in (*parts, self.directory) if part]


def status_text(status: Status, width: int, dot: str) -> str:
    """As many parts as fit into less than `width` columns; the first one is cut if it must be."""
    text, *others = status.parts()
    for part in others:
        longer = f"{text} {dot} {part}"
        if len(longer) >= width:
            break
        text = longer
    return text[: max(0, width - 1)]  # a full row could wrap


def short_name(model: str) -> str:
    """A model's name without the directories, at most MAX_NAME characters."""
    return one_line(model.rsplit("/", 1)[-1], MAX_NAME)


def compact(tokens: int) -> str:
    """`850`, `4.1k`, `128k`, `1.0M`."""
    if tokens < 1000:
        return str(tokens)
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1000:.1f}k" if tokens < 100_000 else f"{tokens // 1000}k"


FRAMES_PER_SECOND = 4


class Activity:
    """The current activity and its duration; nothing while `label` is empty."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self.label = ""
        self._detail = ""
        """Its progress, which the next `start` replaces."""
        self._since = 0.0  # of `time.monotonic`

    def start(self, label: str, detail: str = "") -> None:
        """Begin an activity, or tell its progress: with the same label the clock continues."""
        if label != self.label:
            self.label, self._since = label, time.monotonic()
        self._detail = detail

    def stop(self) -> None:
        """End the activity."""
        self.label = self._detail = ""

    def live(self, hint: str = "") -> list[Piece]:
        """`⠙ writing · 3 s · Esc stops`; nothing without an activity."""
        if not self.label:
            return []
        seconds = time.monotonic() - self._since
        spinner = self._glyphs.spinner
        frame = spinner[int(seconds * FRAMES_PER_SECOND) % len(spinner)]
        duration = f"{seconds:.0f} s" if seconds >= 1 else ""
        parts = [self.label, self._detail, duration, hint]
        joined = f" {self._glyphs.dot} ".join(part for part in parts if part)
        return [Piece(Text(f"{frame} {joined}", style="quiet", no_wrap=True, overflow="ellipsis"))]
