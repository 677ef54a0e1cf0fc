"""Images as their model sees them: their parts, and the place of these in a prompt."""

import ctypes
from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from shepherd.backends.llamacpp.cache.prefixes import runs
from shepherd.backends.llamacpp.native.batch import SECTIONS, ImageSpan
from shepherd.backends.llamacpp.native.bindings import bindings, image_bindings, native_log
from shepherd.backends.llamacpp.native.model import NativeModel, last_error, load_error
from shepherd.errors import BackendError, ImageError, InvalidRequestError
from shepherd.images import Image
from shepherd.session import RawPrompt, Session

Embeddings = list["array[float]"]
"""The embeddings of each picture part of an image."""

NO_IMAGE = "[image]"
"""The text in place of an earlier image that can't be read."""

MAX_PIXELS = 64 * 1024 * 1024
"""The maximum of pixels of an image: its bytes in memory are three times as many."""

_READABLE = ("image/png", "image/jpeg", "image/gif")
_NO_PROGRAMS = b"/nonexistent"
"""The folder of video programs: no bytes of an image may reach one."""


class ImageEncodingError(Exception):
    """The embeddings of an image can't be made."""


class TextPart(Struct, frozen=True):
    """Tokens that a model expects before, between or after the parts of an image."""

    tokens: tuple[int, ...]


class PicturePart(Struct, frozen=True):
    """A part of an image that becomes `count` embeddings at `advance` positions.

    `offsets` are the positions relative to the first one, section by section, with M-RoPE only.
    `width` and `causal` are as in `ImageSpan`.
    """

    count: int
    advance: int
    offsets: "array[int]"
    width: int
    causal: bool


Part = TextPart | PicturePart


class ImageTokens(Struct, frozen=True):
    """An image as its model sees it: `tokens`, with a run of placeholders for each of `parts`."""

    key: bytes
    tokens: tuple[int, ...]
    parts: tuple[PicturePart, ...]


class ImageRun(Struct, eq=False):
    """A part of an image among the tokens of a request: those from `start` to `end`.

    `index` is its number among the parts of the image.
    """

    start: int
    end: int
    image: Image
    key: bytes
    index: int
    part: PicturePart
    encoding: "Future[Embeddings] | None" = None

    @property
    def ready(self) -> bool:
        """Whether its embeddings are there, or have failed."""
        return self.encoding is not None and self.encoding.done()


PromptImages = Mapping[str, tuple[Image, ImageTokens]]
"""The images of a prompt with their tokens, by their marks."""


def raw_images(session: Session) -> Mapping[str, Image]:
    """The images of a raw prompt by their numbers; raises InvalidRequestError."""
    raw = session.raw_prompt
    if not isinstance(raw, RawPrompt):
        return {}
    if raw.images and raw.measured:
        raise InvalidRequestError("A prompt with images has no log probabilities.", "logprobs")
    return {str(number): image for number, image in enumerate(raw.images)}


def image_runs(
    tokens: Sequence[int], prepared: Iterable[tuple[Image, ImageTokens]]
) -> list[ImageRun]:
    """The parts of the images where a prompt has them."""
    parts_by_run: dict[tuple[int, ...], tuple[Image, ImageTokens, int]] = {}
    for image, entry in prepared:
        for index, (start, end) in enumerate(runs(entry.tokens)):
            parts_by_run[entry.tokens[start:end]] = image, entry, index
    placed: list[ImageRun] = []
    for start, end in runs(tokens):
        image, entry, index = parts_by_run[tuple(tokens[start:end])]
        part = entry.parts[index]
        placed.append(ImageRun(start, end, image, entry.key, index, part))
    return placed


def image_span(
    image: ImageRun, start: int, end: int, place: tuple[int, int], *, wants_logits: bool
) -> ImageSpan:
    """The tokens from `start` to `end` of a prompt, which belong to the image.

    `place` is the sequence, and the position of the image's first token. Raises
    ImageEncodingError if the image has no embeddings.
    """
    sequence, base = place
    if image.encoding is None:
        raise ImageEncodingError("The image has no embeddings.")
    try:
        embeddings = image.encoding.result()[image.index]
    except BackendError as error:
        raise ImageEncodingError(str(error)) from error
    first, last = start - image.start, end - image.start
    width = image.part.width
    rows = embeddings[first * width : last * width]
    positions = _positions(image.part, base, first, last)
    return ImageSpan(sequence, rows, width, positions, image.part.causal, wants_logits)


def _positions(part: PicturePart, base: int, first: int, last: int) -> "array[int]":
    """The positions of some tokens of a part; the fourth section of M-RoPE is not relative."""
    if not part.offsets:  # without M-RoPE an image has positions as a text
        return array("i", range(base + first, base + last))
    count = part.count
    positions = array("i")
    for section in range(SECTIONS):
        shift = base if section < SECTIONS - 1 else 0
        offsets = part.offsets[section * count + first : section * count + last]
        positions.extend(offset + shift for offset in offsets)
    return positions


class NativeProjector:
    """A projector and its model, in memory. One thread at a time; close it before the model."""

    def __init__(self, path: Path, model: NativeModel, *, threads: int, use_gpu: bool) -> None:
        """Load the file; raises ModelLoadError."""
        self._lib = lib = image_bindings()
        params = lib.mtmd_context_params_default()
        params.use_gpu = use_gpu
        params.print_timings = params.warmup = False
        params.n_threads = threads
        native_log.take_errors()
        self._handle: Any = lib.mtmd_init_from_file(str(path).encode(), model.handle, params)
        if not self._handle:
            raise load_error(f"The projector {path} can't be loaded")
        if not lib.mtmd_support_vision(self._handle):  # it may be for sounds
            self.close()
            raise load_error(f"The projector {path} is not for images")
        self._width: int = bindings().llama_model_n_embd_inp(model.handle)
        self._mrope: bool = lib.mtmd_decode_use_mrope(self._handle)
        self._causal: bool = not lib.mtmd_decode_use_non_causal(self._handle, None)
        self._marker: bytes = lib.mtmd_default_marker()

    def parts(self, image: Image) -> list[Part]:
        """The parts of an image in their order; raises ImageError if it can't be read."""
        with self._chunks(image) as chunks:
            return [self._part(chunk) for chunk in chunks]

    def embeddings(self, image: Image) -> list["array[float]"]:
        """The embeddings of each picture part; raises ImageError or BackendError."""
        with self._chunks(image) as chunks:
            pictures = [chunk for chunk in chunks if self._is_picture(chunk)]
            return [self._encoded(chunk) for chunk in pictures]

    def close(self) -> None:
        """Free the projector; safe to call twice."""
        if self._handle:
            self._lib.mtmd_free(self._handle)
            self._handle = None

    @contextmanager
    def _chunks(self, image: Image) -> Generator[list[Any]]:
        """The native parts of an image, which are freed behind the block."""
        lib = self._lib
        # The text is only the marker of an image: no special token is added, but those are parsed.
        text = lib.mtmd_input_text(self._marker, len(self._marker), False, True)
        chunks = lib.mtmd_input_chunks_init()
        try:
            with self._bitmap(image) as bitmap:
                bitmaps = (lib.mtmd_bitmap_p_ctypes * 1)(bitmap)
                code = lib.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1)
            if code != 0:
                raise ImageError(f"{_name(image)} can't be divided for the model: {last_error()}")
            count: int = lib.mtmd_input_chunks_size(chunks)
            yield [lib.mtmd_input_chunks_get(chunks, i) for i in range(count)]
        finally:
            lib.mtmd_input_chunks_free(chunks)

    @contextmanager
    def _bitmap(self, image: Image) -> Generator[Any]:
        """The pixels of an image."""
        _check(image)
        lib, data = self._lib, image.data
        options = lib.mtmd_helper_init_opt_default()
        options.video_params.ffmpeg_bin_dir = _NO_PROGRAMS
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        native_log.take_errors()
        read = lib.mtmd_helper_bitmap_init_from_buf_wrapper
        result = read(self._handle, buffer, len(data), False, options)
        try:
            if not result.bitmap or result.video_ctx:  # a video is no image
                raise ImageError(f"{_name(image)} is damaged and can't be read; save it again.")
            yield result.bitmap
        finally:
            if result.bitmap:
                lib.mtmd_bitmap_free(result.bitmap)
            if result.video_ctx:
                lib.mtmd_helper_video_free(result.video_ctx)

    def _is_picture(self, chunk: Any) -> bool:
        """Whether a native part becomes embeddings; others are text around them."""
        kind: int = self._lib.mtmd_input_chunk_get_type(chunk)
        return kind == self._lib.MTMD_INPUT_CHUNK_TYPE_IMAGE

    def _part(self, chunk: Any) -> Part:
        """What the engine needs to know of a native part, which is freed soon."""
        lib = self._lib
        if not self._is_picture(chunk):
            size = ctypes.c_size_t()
            tokens = lib.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
            return TextPart(tuple(tokens[: size.value]))
        count: int = lib.mtmd_input_chunk_get_n_tokens(chunk)
        advance: int = lib.mtmd_input_chunk_get_n_pos(chunk)
        offsets = self._offsets(chunk, count)
        return PicturePart(count, advance, offsets, self._width, self._causal)

    def _offsets(self, chunk: Any, count: int) -> "array[int]":
        """The relative positions of a part's tokens, section by section; empty without M-RoPE."""
        if not self._mrope:
            return array("i")
        lib = self._lib
        tokens = lib.mtmd_input_chunk_get_tokens_image(chunk)
        places = [lib.mtmd_image_tokens_get_decoder_pos(tokens, 0, i) for i in range(count)]
        sections = ([getattr(place, name) for place in places] for name in ("t", "y", "x", "z"))
        offsets = array("i", [number for section in sections for number in section])
        assert len(offsets) == SECTIONS * count
        return offsets

    def _encoded(self, chunk: Any) -> "array[float]":
        """A copy of the embeddings of a part; raises BackendError."""
        lib = self._lib
        native_log.take_errors()
        if lib.mtmd_encode_chunk(self._handle, chunk) != 0:
            raise BackendError(f"llama.cpp could not encode an image: {last_error()}")
        size = lib.mtmd_input_chunk_get_n_tokens(chunk) * self._width
        pointer = lib.mtmd_get_output_embd(self._handle)
        embeddings = array("f")
        embeddings.frombytes(ctypes.string_at(pointer, size * ctypes.sizeof(ctypes.c_float)))
        return embeddings


def _check(image: Image) -> None:
    """Refuse an image that the library can't read, before it tries."""
    if image.media_type not in _READABLE:
        kind = image.media_type.removeprefix("image/").upper()
        raise ImageError(
            f"{_name(image)} is {kind}, which models that run here can't read; "
            "convert it to PNG or JPEG first."
        )
    width, height = image.size
    if not 0 < width * height <= MAX_PIXELS:
        raise ImageError(
            f"{_name(image)} has {width}×{height} pixels, more than {MAX_PIXELS:,}; "
            "make it smaller first."
        )


def _name(image: Image) -> str:
    """What an error calls an image."""
    return image.name or "The image"
