"""Images as tokens and embeddings, made on a thread of their own and kept for a while."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from hashlib import sha256
from pathlib import Path
from threading import Lock

from msgspec import Struct, field

from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.cache.prefixes import placeholders
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.vision import parts
from shepherd.errors import BackendError, ImageError
from shepherd.images import Image

logger = logging.getLogger(__name__)

MAX_EMBEDDING_BYTES = 256 * 1024 * 1024
"""Embeddings that are kept, in addition to those of one image of any size."""

MAX_KNOWN_IMAGES = 512
"""Images whose tokens are kept; those of later ones are computed again."""


class _Request(Struct, eq=False):
    """An image that waits for its embeddings, with a question to each job that wants them.

    A question of `still_needed` is whether the job still goes on.
    """

    future: "Future[parts.Embeddings]" = field(default_factory=Future[parts.Embeddings])
    still_needed: list[Callable[[], bool]] = field(default_factory=list[Callable[[], bool]])


class VisionSetup(Struct, frozen=True):
    """A projector with its digest, and how to run it; `ubatch` tokens can be computed at once."""

    path: Path
    digest: bytes
    threads: int
    use_gpu: bool
    ubatch: int


class ImageEncoder:
    """Prepares and encodes the images of one model. The projector is loaded at the first image.

    `prepare` is called from the event loop, `encode` from the owner thread of llama.cpp.
    """

    def __init__(self, setup: VisionSetup, model: NativeModel, wake: Callable[[], None]) -> None:
        """`wake` is called on the encoder's thread when embeddings are there, or have failed."""
        self.path = setup.path
        self._setup = setup
        self._model = model
        self._wake = wake
        self._thread = TextThread("llama.cpp images")
        self._lock = Lock()
        self._known: OrderedDict[bytes, parts.ImageTokens] = OrderedDict()
        self._embeddings: OrderedDict[bytes, parts.Embeddings] = OrderedDict()
        self._requests: dict[bytes, _Request] = {}
        self._native: parts.NativeProjector | None = None
        self._closing = False
        self.encoded = 0
        """The number of images that were encoded."""

    async def prepare(self, image: Image) -> parts.ImageTokens:
        """The tokens of an image; raises ImageError if it can't be read, or ModelLoadError."""
        # Equal images have the same tokens with the same projector.
        digest = self._setup.digest
        key = await asyncio.to_thread(lambda: sha256(digest + image.data).digest())
        with self._lock:
            known_tokens = self._known.get(key)
        return known_tokens or await self._thread.run(self._prepare, key, image)

    async def prepare_all(
        self, images: Mapping[str, Image], earlier: Sequence[Image]
    ) -> parts.PromptImages:
        """The images with their tokens, by the same names.

        Raises ImageError if an image can't be read, unless it is an `earlier` one, which another
        model may have seen: that one becomes text.
        """
        prepared: dict[str, tuple[Image, parts.ImageTokens]] = {}
        for name, image in images.items():
            try:
                prepared[name] = image, await self.prepare(image)
            except ImageError:
                if not any(image is other for other in earlier):
                    raise
                text = tuple(self._model.vocab.tokenize(parts.NO_IMAGE))
                prepared[name] = image, parts.ImageTokens(b"", text, ())  # no key, because no part
        return prepared

    def encode(
        self, key: bytes, image: Image, still_needed: Callable[[], bool]
    ) -> "Future[parts.Embeddings]":
        """The embeddings of an image's parts, once they are there.

        An image is not encoded if `still_needed` of all its requests is false when its turn comes.
        """
        with self._lock:
            kept = self._embeddings.get(key)
            if kept is not None:
                self._embeddings.move_to_end(key)  # the least recently used ones are dropped first
                done: Future[parts.Embeddings] = Future()
                done.set_result(kept)
                return done
            is_new = key not in self._requests
            request = self._requests.setdefault(key, _Request())
            request.still_needed.append(still_needed)
        if is_new and self._thread.post(self._encode, key, image) is None:
            request.future.set_exception(BackendError("The model was closed."))
        return request.future

    def request(self, runs: Iterable[parts.ImageRun], still_needed: Callable[[], bool]) -> None:
        """Request the embeddings of these parts of images, unless that was done."""
        for run in runs:
            if run.encoding is None:
                run.encoding = self.encode(run.key, run.image, still_needed)

    def close(self) -> None:
        """Wait for the thread and free the projector; safe to call twice."""
        self._closing = True
        self._thread.close()
        if self._native is not None:
            self._native.close()
            self._native = None

    def _loaded(self) -> parts.NativeProjector:
        """The projector, which is loaded at the first image; on the encoder's thread."""
        if self._native is None:
            setup = self._setup
            self._native = parts.NativeProjector(
                setup.path, self._model, threads=setup.threads, use_gpu=setup.use_gpu
            )
        return self._native

    def _prepare(self, key: bytes, image: Image) -> parts.ImageTokens:
        """Divide an image into its parts; on the encoder's thread."""
        native = self._loaded()
        tokens: list[int] = []
        pictures: list[parts.PicturePart] = []
        for part in native.parts(image):
            if isinstance(part, parts.TextPart):
                tokens += part.tokens
                continue
            self._check_size(part, image)
            # The same picture at another place of an image has other placeholders.
            part_key = key + len(pictures).to_bytes(4, "little")
            tokens += placeholders(part_key, part.count, part.advance)
            pictures.append(part)
        prepared = parts.ImageTokens(key, tuple(tokens), tuple(pictures))
        with self._lock:
            self._known[key] = prepared
            if len(self._known) > MAX_KNOWN_IMAGES:
                self._known.popitem(last=False)
        return prepared

    def _check_size(self, part: parts.PicturePart, image: Image) -> None:
        """Raise ImageError for a part whose tokens attend to each other and don't fit a batch."""
        limit = self._setup.ubatch
        if not part.causal and part.count > limit:
            raise ImageError(
                f"{image.name or 'The image'} takes {part.count} tokens, which this model must "
                f"compute at once, but llamacpp.ubatch is {limit}. Set llamacpp.ubatch and "
                f"llamacpp.n_batch to {part.count} or more."
            )

    def _encode(self, key: bytes, image: Image) -> None:
        """Encode an image that is still needed; on the encoder's thread."""
        with self._lock:
            request = self._requests[key]
            is_needed = not self._closing and any(needed() for needed in request.still_needed)
            if not is_needed:
                del self._requests[key]
        if not is_needed:
            request.future.set_exception(BackendError("The image is not needed any more."))
            return
        self._finish(key, image, request.future)
        self._wake()

    def _finish(self, key: bytes, image: Image, future: "Future[parts.Embeddings]") -> None:
        """Make the embeddings and give them to the requests that wait."""
        try:
            embeddings = self._loaded().embeddings(image)
        except Exception as fault:  # noqa: BLE001 - goes to the requests that wait for the image
            with self._lock:
                del self._requests[key]
            future.set_exception(_failure(fault))
            return
        with self._lock:
            del self._requests[key]
            self._embeddings[key] = embeddings
            # The newest one stays at any size, because its requests read it next.
            while len(self._embeddings) > 1 and self._kept_bytes() > MAX_EMBEDDING_BYTES:
                self._embeddings.popitem(last=False)
            self.encoded += 1
        future.set_result(embeddings)

    def _kept_bytes(self) -> int:
        """The size of all embeddings that are kept."""
        kept = (part for embeddings in self._embeddings.values() for part in embeddings)
        return sum(len(part) * part.itemsize for part in kept)


def _failure(fault: Exception) -> BackendError:
    """The error for the requests; an unexpected one is logged."""
    if isinstance(fault, BackendError):
        return fault
    logger.error("Encoding an image failed", exc_info=fault)
    return BackendError(f"The image can't be encoded: {fault!r}")
