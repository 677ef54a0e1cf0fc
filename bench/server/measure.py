"""Health checks and short requests, while one request is repeated."""

import threading
import time
from dataclasses import dataclass, field

import httpx

from bench.table import milliseconds

_CHAT = "/v1/chat/completions"
_PAUSE = 0.02
_TIMEOUT = 120.0


@dataclass
class Notice:
    """The seconds of health checks, first tokens and the bad request; its last answer."""

    health: list[float] = field(default_factory=list[float])
    first: list[float] = field(default_factory=list[float])
    bad: list[float] = field(default_factory=list[float])
    answer: str = "–"

    def times(self) -> list[str]:
        """The columns of a table."""
        worst = max(self.bad, default=0.0)
        ordered, first = sorted(self.health), sorted(self.first)
        return [
            milliseconds(worst) if self.bad else "–",
            milliseconds(ordered[int(len(ordered) * 0.99)]),
            milliseconds(first[len(first) // 2]),
            milliseconds(first[-1]),
        ]


def measure(url: str, bad: bytes | None, seconds: float) -> Notice:
    """Send requests for `seconds`, and until the bad request was answered once."""
    notice, stop = Notice(), threading.Event()
    threads = [
        threading.Thread(target=_ask_health, args=(url, notice, stop)),
        threading.Thread(target=_ask_model, args=(url, notice, stop)),
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if bad is None:
            time.sleep(_PAUSE)
        else:
            started = time.perf_counter()
            notice.answer = _send(url, bad)
            notice.bad.append(time.perf_counter() - started)
    while not (notice.health and notice.first) and time.monotonic() < until + _TIMEOUT:
        time.sleep(_PAUSE)
    stop.set()
    for thread in threads:
        thread.join()
    return notice


def _send(url: str, body: bytes) -> str:
    headers = {"Content-Type": "application/json"}
    try:
        answer = httpx.post(url + _CHAT, content=body, headers=headers, timeout=_TIMEOUT)
    except httpx.HTTPError as error:
        return type(error).__name__
    return f"{answer.status_code}"


def _ask_health(url: str, notice: Notice, stop: threading.Event) -> None:
    with httpx.Client(base_url=url, timeout=_TIMEOUT) as client:
        while not stop.is_set():
            started = time.perf_counter()
            client.get("/health")
            notice.health.append(time.perf_counter() - started)
            time.sleep(_PAUSE)


def _ask_model(url: str, notice: Notice, stop: threading.Event) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": True}
    with httpx.Client(base_url=url, timeout=_TIMEOUT) as client:
        while not stop.is_set():
            started = time.perf_counter()
            with client.stream("POST", _CHAT, json=body) as answer:
                chunks = answer.iter_raw()
                next(chunks)
                notice.first.append(time.perf_counter() - started)
                for _ in chunks:
                    pass
            time.sleep(_PAUSE)
