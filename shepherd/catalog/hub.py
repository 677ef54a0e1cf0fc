"""Downloads models from a hub: selects their files, and verifies that they are complete."""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from time import sleep
from typing import Any, BinaryIO, cast

import httpx
from msgspec import Struct

from shepherd.catalog.local_models import find_local_model
from shepherd.catalog.model_files import is_model_name, is_projector_name, model_name
from shepherd.errors import ModelLoadError

_TIMEOUT = httpx.Timeout(30.0, read=60.0)
_MAX_ATTEMPTS = 5
"""The number of attempts without progress before the download fails."""

_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_RANGE = re.compile(r"bytes (?P<first>\d+)-")


class DownloadError(Exception):
    """The server can't be reached, or refuses the file; `status` is 0 if there is no HTTP status.

    The downloaded part is kept.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Source(Struct, frozen=True):
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
        failures_in_a_row, reported_bytes = 0, 0
        while not source.size or file.seek(0, os.SEEK_END) < source.size:
            bytes_before = file.tell()
            advance(bytes_before - reported_bytes)  # less than 0 if the part was thrown away
            reported_bytes = bytes_before
            try:
                for count in _download_rest(client, source, file):
                    advance(count)
                    reported_bytes += count
            except httpx.TransportError as error:
                problem = str(error) or type(error).__name__
            else:
                if not source.size or file.tell() >= source.size:
                    break
                problem = "the connection was closed too early"
            made_progress = file.tell() > bytes_before
            failures_in_a_row = 1 if made_progress else failures_in_a_row + 1
            if failures_in_a_row >= _MAX_ATTEMPTS:
                raise DownloadError(problem)
            sleep(0.1 * 2**failures_in_a_row)
        advance(file.tell() - reported_bytes)
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
            yield -start  # the bytes that were there count no more
        for piece in response.iter_raw():
            file.write(piece)
            yield len(piece)


def _first_byte(response: httpx.Response) -> int:
    """The place in the file where the reply begins; 0 for the whole file."""
    if response.status_code != _PARTIAL_CONTENT:
        return 0
    match = _RANGE.match(response.headers.get("Content-Range", ""))
    return int(match["first"]) if match else 0


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
        file.seek(0, os.SEEK_END)
        yield file


PREFERRED = ("Q4_K_M", "Q4_K_XL", "Q4_K_S", "MXFP4", "IQ4_XS", "Q5_K_M", "Q4_0", "Q6_K", "Q8_0")
"""The default quantisations in order of preference: small, and nearly as good as the original."""

MAX_NAMES = 30

_GATED = (
    "{repo} requires that you accept its terms: do that on the hub's page and set "
    "HF_TOKEN to a token of yours."
)
_UNREACHABLE = (
    "The hub can't be reached for {repo} ({reason}); a part that is loaded stays, and the same "
    "command goes on from there."
)

_LICENCE = re.compile(r"(LICEN[SC]E|COPYING)[^/]*", re.IGNORECASE)
_MAX_TEXT = 1_000_000
"""Files that have the terms of a model, and their size."""

_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")
"""Of a model's projectors, the first of these precisions is downloaded."""


class PullProgress(Struct, frozen=True):
    """A step of a pull; bytes of the file `digest`, both 0 in steps without a transfer."""

    status: str
    digest: str = ""
    completed: int = 0
    total: int = 0


Report = Callable[[PullProgress], None]
"""Receives each step of a pull; an error that it raises ends the pull, whose part stays."""


class HubFile(Struct, frozen=True):
    """A file of a repository; `size` in bytes, 0 = unknown; `sha256` is "" if unknown."""

    name: str
    size: int = 0
    sha256: str = ""


class Repository(Struct, frozen=True):
    """What a repository has; the `licence` is its name and a link, "" if it names none."""

    name: str
    files: Sequence[HubFile]
    licence: str = ""


class ModelSelection(Struct, frozen=True):
    """The model to download: a file of `repo`, a quantisation, or the default."""

    repo: str
    file: str = ""
    quant: str = ""


def parse_selection(text: str) -> ModelSelection:
    """`OWNER/NAME`, `OWNER/NAME:QUANT` or `OWNER/NAME/FILE`, or the name of a model of the table.

    Raises ModelLoadError.
    """
    text = text.removeprefix("https://huggingface.co/").removeprefix("hf.co/")
    before, _, last = text.rpartition(":")
    for name, quant in ((text, ""), (before, last)):  # names of the table may have a colon, too
        if known := find_local_model(name):
            return ModelSelection(known.repository, quant=quant)
    whole, _, quant = text.partition(":")
    owner, _, rest = whole.partition("/")
    name, _, file = rest.partition("/")
    file = re.sub(r"^(blob|resolve)/[^/]+/", "", file)
    if not owner or not name or (file and quant):
        raise ModelLoadError(
            f"{text!r} is not a model on the hub: write OWNER/NAME, OWNER/NAME:QUANT, "
            "OWNER/NAME/FILE.gguf or a name that `shepherd model pick` lists."
        )
    return ModelSelection(f"{owner}/{name}", file, quant)


def choose_files(files: Sequence[HubFile], selection: ModelSelection) -> list[HubFile]:
    """The files of one model, all parts of a split one; raises ModelLoadError with the choices.

    A projector must be named as a file.
    """
    models: dict[str, list[HubFile]] = {}
    is_candidate = is_projector_name if is_projector_name(selection.file) else is_model_name
    for file in sorted(files, key=lambda f: f.name):
        if is_candidate(PurePosixPath(file.name).name):
            models.setdefault(model_name(file.name), []).append(file)
    if not models:
        raise ModelLoadError(
            f"{selection.repo} has no GGUF files; look for a repository of the same model with "
            "GGUF in its name."
        )
    chosen_names = _matching(list(models), selection)
    if len(chosen_names) == 1:
        return models[chosen_names[0]]
    names = ", ".join(sorted(models)[:MAX_NAMES])
    query = selection.file or selection.quant
    is_missing = query and not chosen_names
    reason = f"nothing there is {query}" if is_missing else "several models are there"
    raise ModelLoadError(
        f"{selection.repo}: {reason}; choose with OWNER/NAME:QUANT or OWNER/NAME/FILE: {names}"
    )


def pull(text: str, models_dir: Path, report: Report, *, images: bool = True) -> Path:
    """Download the model that `text` names into `models_dir`, and return its first file, verified.

    Its licence comes beside it, and with `images` a projector, if the repository has one. Continues
    an interrupted download. Raises ModelLoadError, also if the hub can't be reached.
    """
    selection = parse_selection(text)
    with _hub_errors(selection.repo):
        repository = _repository(selection.repo)
    files = choose_files(repository.files, selection)
    if images and not is_projector_name(files[0].name):
        files += _projector(repository.files)
    directory = models_dir / selection.repo.rpartition("/")[2]
    total = sum(file.size for file in files)
    _check_room(models_dir, total)
    names = ", ".join(f.name for f in files)
    report(PullProgress(f"{selection.repo}: {names} ({total / 2**30:.1f} GiB)"))
    _keep_licence(repository, directory, report)
    paths = [_fetch(selection.repo, file, directory, report) for file in files]
    return paths[0]


def _projector(files: Sequence[HubFile]) -> list[HubFile]:
    """The projector that a model of these files reads images with; none if there is none."""
    projectors = [file for file in files if is_projector_name(PurePosixPath(file.name).name)]
    order = {quant: place for place, quant in enumerate(_PROJECTORS)}

    def rank(file: HubFile) -> int:
        return min((order[q] for q in order if _is_quant(file.name, q)), default=len(order))

    return [min(projectors, key=rank)] if projectors else []


def _keep_licence(repository: Repository, directory: Path, report: Report) -> None:
    """Show the licence, and keep it beside the model: its text, else its name and a link."""
    link = f"https://huggingface.co/{repository.name}"
    terms = f"{repository.licence or 'not named'} ({link})"
    report(PullProgress(f"The licence of the model: {terms}"))
    texts = [f for f in repository.files if _LICENCE.fullmatch(f.name) and f.size < _MAX_TEXT]
    for file in texts:
        _fetch(repository.name, file, directory, report)
    if not texts:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "LICENSE").write_text(f"The licence of {repository.name}: {terms}\n", "utf-8")


def _matching(names: Sequence[str], selection: ModelSelection) -> list[str]:
    """The names of models that the selection may mean; exactly one if it is clear."""
    if selection.file:
        file_name = model_name(selection.file.removesuffix(".gguf") + ".gguf")
        return [name for name in names if file_name in (name, PurePosixPath(name).name)]
    if selection.quant:
        return [name for name in names if _is_quant(name, selection.quant)]
    if len(names) > 1:
        for quant in PREFERRED:
            matching = [name for name in names if _is_quant(name, quant)]
            if matching:
                return matching
    return list(names)


def _is_quant(name: str, quant: str) -> bool:
    """Whether the name has this quantisation as a word: `Q4_K` is not in `model-Q4_K_M`."""
    word = rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(word, name, re.IGNORECASE) is not None


def _fetch(repo: str, file: HubFile, directory: Path, report: Report) -> Path:
    """Download one file unless it is there, and verify it; raises ModelLoadError."""
    target = directory / PurePosixPath(file.name).name
    if target.is_file() and _is_whole(target, file):
        report(PullProgress(f"{target.name} is there already."))
        return target
    loaded = _downloaded(repo, file, target, report)
    if not _is_whole(loaded, file):
        loaded.unlink()
        raise ModelLoadError(
            f"{file.name} does not match the checksum of the hub; it is deleted. Pull it again."
        )
    return loaded.replace(target)


def _downloaded(repo: str, file: HubFile, target: Path, report: Report) -> Path:
    """The downloaded file, under a temporary name until it is verified.

    huggingface_hub deletes the part of a download that ends too early; this continues it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    completed = 0

    def advance(count: int) -> None:
        nonlocal completed
        completed += count
        digest = f"sha256:{file.sha256}" if file.sha256 else target.name
        report(PullProgress(f"pulling {target.name}", digest, completed, file.size))

    try:
        return download(_source(repo, file), target, advance)
    except DownloadError as error:
        raise _load_error(repo, error) from error


def file_starts(text: str) -> list[tuple[HubFile, Callable[[int], bytes]]]:
    """The files of a model on the hub, each with a function that reads so many first bytes.

    Raises ModelLoadError, as the functions do.
    """
    selection = parse_selection(text)
    with _hub_errors(selection.repo):
        files = choose_files(_repository(selection.repo).files, selection)
    return [(file, partial(_read_start, selection.repo, file)) for file in files]


def _read_start(repo: str, file: HubFile, length: int) -> bytes:
    """The first bytes of a file, also from a server that knows no ranges."""
    source, data = _source(repo, file), bytearray()
    headers = {**(source.headers or {}), "Accept-Encoding": "identity"}
    headers["Range"] = f"bytes=0-{length - 1}"
    try:
        with (
            httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client,
            client.stream("GET", source.url, headers=headers) as response,
        ):
            if response.is_error:
                status = response.status_code
                raise DownloadError(f"it answers {status}", status)
            for piece in response.iter_raw():
                data += piece
                if len(data) >= length:
                    break
    except httpx.TransportError as error:
        raise _load_error(repo, DownloadError(str(error) or type(error).__name__)) from error
    except DownloadError as error:
        raise _load_error(repo, error) from error
    return bytes(data[:length])


def _source(repo: str, file: HubFile) -> Source:
    """Where a file is."""
    import huggingface_hub.utils
    from huggingface_hub import hf_hub_url

    utils = cast(Any, huggingface_hub.utils)  # huggingface_hub is partly untyped
    headers = cast(dict[str, str], utils.build_hf_headers())
    return Source(hf_hub_url(repo, file.name), file.size, file.sha256, headers)


def _load_error(repo: str, error: DownloadError) -> ModelLoadError:
    """The error with advice."""
    message = _GATED if error.status in (401, 403) else _UNREACHABLE
    return ModelLoadError(message.format(repo=repo, reason=error))


def _is_whole(path: Path, file: HubFile) -> bool:
    """Whether a file on this disk has the size and the checksum of the hub's, if it has these."""
    if file.size and path.stat().st_size != file.size:
        return False
    if not file.sha256:
        return True
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256


def _repository(name: str) -> Repository:
    """What the hub tells of a repository; raises the errors of huggingface_hub."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi

    info, files = HfApi().model_info(name, files_metadata=True), list[HubFile]()
    for sibling in info.siblings or []:
        sha256 = cast(str, getattr(sibling.lfs, "sha256", "") or "")  # only large files have one
        files.append(HubFile(sibling.rfilename, sibling.size or 0, sha256))
    licences = (tag for tag in info.tags or [] if tag.startswith("license:"))
    return Repository(name, files, next(licences, "").removeprefix("license:"))


def _check_room(directory: Path, needed: int) -> None:
    """Raise ModelLoadError if the disk is too small."""
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise ModelLoadError(
            f"{directory} has {free / 2**30:.1f} GiB left, but {needed / 2**30:.1f} are needed; "
            "make room, or set llamacpp.models_dir to a larger disk."
        )


@contextmanager
def _hub_errors(repo: str) -> Generator[None]:
    """Raise ModelLoadError with advice for the errors of huggingface_hub in the block."""
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
    except (network, errors.LocalEntryNotFoundError, ConnectionError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0][:200]
        raise ModelLoadError(_UNREACHABLE.format(repo=repo, reason=reason)) from error
