"""An image as the parts that its model sees, and their place in a prompt."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from shepherd.backends.llamacpp.cache.prefixes import runs
from shepherd.backends.llamacpp.native.batch import SECTIONS, ImageSpan
from shepherd.errors import BackendError, InvalidRequestError
from shepherd.images import Image
from shepherd.session import RawPrompt, Session


class ImageEncodingError(Exception):
    """The embeddings of an image can't be made."""


Embeddings = list["array[float]"]
"""The embeddings of each picture part of an image."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """Tokens that a model expects before, between or after the parts of an image."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PicturePart:
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


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """An image as its model sees it: `tokens`, with a run of placeholders for each of `parts`."""

    key: bytes
    tokens: tuple[int, ...]
    parts: tuple[PicturePart, ...]


@dataclass(slots=True, eq=False)
class ImageRun:
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


NO_IMAGE = "[image]"
"""The text in place of an earlier image that can't be read."""

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
    known: dict[tuple[int, ...], tuple[Image, ImageTokens, int]] = {}
    for image, entry in prepared:
        for index, (start, end) in enumerate(runs(entry.tokens)):
            known[entry.tokens[start:end]] = image, entry, index
    placed: list[ImageRun] = []
    for start, end in runs(tokens):
        image, entry, index = known[tuple(tokens[start:end])]
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
    if not part.offsets:
        return array("i", range(base + first, base + last))
    count = part.count
    positions = array("i")
    for section in range(SECTIONS):
        shift = base if section < SECTIONS - 1 else 0
        offsets = part.offsets[section * count + first : section * count + last]
        positions.extend(offset + shift for offset in offsets)
    return positions
