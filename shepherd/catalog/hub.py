"""Gets models from the Hugging Face hub: whole and verified, or only their first bytes."""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from time import sleep
from typing import Any, cast

import httpx
from msgspec import Struct

from shepherd.catalog.hub_files import HubFile, choose_files, parse_selection, projectors
from shepherd.catalog.model_files import is_projector_name, size_text
from shepherd.errors import ModelLoadError

_TIMEOUT = httpx.Timeout(30.0, read=60.0)
_MAX_ATTEMPTS = 5
"""The number of attempts without progress before the download fails."""

_PARTIAL_CONTENT = 206

_GATED = (
    "{repo} requires that you accept its terms: do that on the hub's page and set "
    "HF_TOKEN to a token of yours."
)
_LICENCE = re.compile(r"(LICEN[SC]E|COPYING)[^/]*", re.IGNORECASE)
_MAX_TEXT = 1_000_000
"""Files that have the terms of a model, and their size."""


class PullProgress(Struct, frozen=True):
    """A step of a pull; bytes of the file `digest`, both 0 in steps without a transfer."""

    status: str
    digest: str = ""
    completed: int = 0
    total: int = 0


Report = Callable[[PullProgress], None]
"""Receives each step of a pull; an error that it raises ends the pull, whose part stays."""


def pull(text: str, models_dir: Path, report: Report, *, images: bool = True) -> Path:
    """Download the model that `text` names into `models_dir`, and return its first file, verified.

    Its licence comes beside it, and with `images` a projector, if the repository has one. Continues
    an interrupted download. Raises ModelLoadError, also if the hub can't be reached.
    """
    selection = parse_selection(text)
    with _hub_errors(selection.repo):
        present, licence = _repository(selection.repo)
        files = choose_files(present, selection)
        if images and not is_projector_name(files[0].name):
            files += projectors(present)
        directory = models_dir / selection.repo.rpartition("/")[2]
        total = sum(file.size for file in files)
        _check_room(models_dir, total)
        names = ", ".join(f.name for f in files)
        report(PullProgress(f"{selection.repo}: {names} ({size_text(total)})"))
        texts = [f for f in present if _LICENCE.fullmatch(f.name) and f.size < _MAX_TEXT]
        _show_licence(selection.repo, licence, None if texts else directory, report)
        for file in texts:
            _fetch(selection.repo, file, directory, report)
        first, *_ = (_fetch(selection.repo, file, directory, report) for file in files)
        return first


def model_contents(text: str) -> list[tuple[HubFile, Iterator[bytes]]]:
    """The files of a model on the hub, each with its content, which comes as far as it is read.

    Raises ModelLoadError, as the contents do.
    """
    selection = parse_selection(text)
    with _hub_errors(selection.repo):
        files = choose_files(_repository(selection.repo)[0], selection)
    return [(file, _content(selection.repo, file)) for file in files]


def _content(repo: str, file: HubFile) -> Iterator[bytes]:
    """A file in pieces."""
    with _hub_errors(repo):
        for _place, piece in _pieces(repo, file, 0):
            yield piece


def _show_licence(repo: str, licence: str, directory: Path | None, report: Report) -> None:
    """Show the name of a licence and a link, and keep them in `directory`, if there is one."""
    from huggingface_hub import constants

    terms = f"{licence or 'not named'} ({constants.ENDPOINT}/{repo})"
    report(PullProgress(f"The licence of the model: {terms}"))
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "LICENSE").write_text(f"The licence of {repo}: {terms}\n", "utf-8")


def _fetch(repo: str, file: HubFile, directory: Path, report: Report) -> Path:
    """Download one file unless it is there, and verify it; raises ModelLoadError."""
    target = directory / PurePosixPath(file.name).name
    if target.is_file() and _is_whole(target, file):
        report(PullProgress(f"{target.name} is there already."))
        return target
    digest = f"sha256:{file.sha256}" if file.sha256 else target.name

    def advance(completed: int) -> None:
        report(PullProgress(f"pulling {target.name}", digest, completed, file.size))

    directory.mkdir(parents=True, exist_ok=True)
    version = f".{file.sha256[:12]}" if file.sha256 else ""
    part = target.with_name(f"{target.name}{version}.part")
    _complete(repo, file, part, advance)
    if not _is_whole(part, file):
        part.unlink()
        raise ModelLoadError(
            f"{file.name} does not match the checksum of the hub; it is deleted. Pull it again."
        )
    return part.replace(target)


def _complete(repo: str, file: HubFile, part: Path, advance: Callable[[int], None]) -> None:
    """Download what is missing behind a part, which stays after an error.

    huggingface_hub throws it away. Raises httpx.HTTPError, and ModelLoadError while another process
    does this.
    """
    with part.open("ab", buffering=0) as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelLoadError(
                f"Another process is downloading {part.name}; wait for it, or stop it."
            ) from error
        attempts = 0
        while not (there := opened.seek(0, os.SEEK_END)) or there != file.size:
            start = there if there < file.size else 0
            advance(start)
            try:
                for place, piece in _pieces(repo, file, start):
                    opened.truncate(place)  # a server that knows no ranges begins again
                    opened.write(piece)
                    advance(place + len(piece))
                return
            except httpx.TransportError:
                attempts = 1 if opened.seek(0, os.SEEK_END) > there else attempts + 1
                if attempts >= _MAX_ATTEMPTS:
                    raise
                sleep(0.1 * 2**attempts)
        advance(file.size)


def _pieces(repo: str, file: HubFile, start: int) -> Iterator[tuple[int, bytes]]:
    """The file from `start`, each piece with its place.

    A server that knows no ranges sends it from 0. Raises httpx.HTTPError.
    """
    import huggingface_hub.utils
    from huggingface_hub import hf_hub_url

    utils = cast(Any, huggingface_hub.utils)  # huggingface_hub is partly untyped
    headers = {**cast(dict[str, str], utils.build_hf_headers()), "Accept-Encoding": "identity"}
    headers["Range"] = f"bytes={start}-"
    with (
        httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client,
        client.stream("GET", hf_hub_url(repo, file.name), headers=headers) as response,
    ):
        response.raise_for_status()
        place = start if response.status_code == _PARTIAL_CONTENT else 0
        for piece in response.iter_raw():
            yield place, piece
            place += len(piece)


def _is_whole(path: Path, file: HubFile) -> bool:
    """Whether a file on this disk has the size and the checksum of the hub's, if it has these."""
    if file.size and path.stat().st_size != file.size:
        return False
    if not file.sha256:
        return True
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256


def _repository(name: str) -> tuple[list[HubFile], str]:
    """The files of a repository, and the name of its licence, "" if it names none.

    Raises the errors of huggingface_hub.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi

    info, files = HfApi().model_info(name, files_metadata=True), list[HubFile]()
    for sibling in info.siblings or []:
        sha256 = cast(str, getattr(sibling.lfs, "sha256", "") or "")  # only large files have one
        files.append(HubFile(sibling.rfilename, sibling.size or 0, sha256))
    licences = (tag for tag in info.tags or [] if tag.startswith("license:"))
    return files, next(licences, "").removeprefix("license:")


def _check_room(directory: Path, needed: int) -> None:
    """Raise ModelLoadError if the disk is too small."""
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise ModelLoadError(
            f"{directory} has {size_text(free)} left, but {size_text(needed)} are needed; "
            "make room, or set llamacpp.models_dir to a larger disk."
        )


@contextmanager
def _hub_errors(repo: str) -> Generator[None]:
    """Raise ModelLoadError with advice for the errors of the hub and of huggingface_hub."""
    from huggingface_hub import errors

    # The base of the errors of all HTTP libraries that huggingface_hub may use.
    network = cast(type[Exception], errors.HfHubHTTPError.__bases__[0])
    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelLoadError(_GATED.format(repo=repo)) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelLoadError(
            f"The hub has no model {repo}, or it is private: check the name, or set HF_TOKEN."
        ) from error
    except errors.HFValidationError as error:
        raise ModelLoadError(f"{repo!r} can't be a model's name on the hub.") from error
    except (network, httpx.HTTPError, errors.LocalEntryNotFoundError, ConnectionError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403):
            raise ModelLoadError(_GATED.format(repo=repo)) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(
            f"The hub can't be reached for {repo} ({lines[0][:200]}); a part that is loaded stays, "
            "and the same command goes on from there."
        ) from error
