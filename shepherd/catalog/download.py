"""Downloads one large file from a server, and continues an interrupted download."""

import fcntl
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import BinaryIO

import httpx

from shepherd.errors import ModelLoadError

_TIMEOUT = httpx.Timeout(30.0, read=60.0)
_MAX_ATTEMPTS = 5
"""The number of attempts without progress before the download fails."""

_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_RANGE = re.compile(r"bytes (\d+)-")


class DownloadError(Exception):
    """The server can't be reached, or refuses the file; `status` is 0 if there is no HTTP status.

    The downloaded part is kept.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Source:
    """The location of a file; `size` in bytes, 0 = unknown. `version` changes with its content."""

    url: str
    size: int = 0
    version: str = ""
    headers: Mapping[str, str] | None = None


Advance = Callable[[int], None]
"""Receives the number of each new part's bytes, at first those of an earlier attempt."""


def download(source: Source, target: Path, advance: Advance) -> Path:
    """Download the complete file beside `target`, under another name, and return its path.

    Raises DownloadError, and ModelLoadError while another process downloads it.
    """
    names = (target.name, source.version[:12], "part")
    part = target.with_name(".".join(name for name in names if name))
    with (
        _locked_part(part) as file,
        httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client,
    ):
        attempts, reported = 0, 0
        while not source.size or file.seek(0, 2) < source.size:
            before = file.tell()
            advance(before - reported)
            reported = before
            try:
                for count in _download_rest(client, source, file):
                    advance(count)
                    reported += count
            except httpx.TransportError as error:
                problem = str(error) or type(error).__name__
            else:
                if not source.size or file.tell() >= source.size:
                    break
                problem = "the connection was closed too early"
            attempts = 1 if file.tell() > before else attempts + 1
            if attempts >= _MAX_ATTEMPTS:
                raise DownloadError(problem)
            sleep(0.1 * 2**attempts)
        advance(file.tell() - reported)
    return part


def _download_rest(client: httpx.Client, source: Source, file: BinaryIO) -> Iterator[int]:
    """Request the missing part; yields the size of each piece after writing it."""
    start = file.tell()
    headers = {**(source.headers or {}), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with client.stream("GET", source.url, headers=headers) as response:
        if response.status_code == _RANGE_NOT_SATISFIABLE:
            file.truncate(0)  # the existing part is not a prefix of the file
            file.seek(0)
            return
        if response.is_error:
            raise DownloadError(f"it answers {response.status_code}", response.status_code)
        if start and _first_byte(response) != start:
            file.truncate(0)  # the server sends the whole file
            file.seek(0)
            yield -start
        for piece in response.iter_raw():
            file.write(piece)
            yield len(piece)


def _first_byte(response: httpx.Response) -> int:
    if response.status_code != _PARTIAL_CONTENT:
        return 0
    match = _RANGE.match(response.headers.get("Content-Range", ""))
    return int(match.group(1)) if match else 0


@contextmanager
def _locked_part(part: Path) -> Generator[BinaryIO]:
    """The partial file, opened for appending by this process only."""
    with part.open("ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelLoadError(
                f"Another process is downloading {part.name}; wait for it, or stop it."
            ) from error
        file.seek(0, 2)
        yield file
