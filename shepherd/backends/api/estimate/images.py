"""The cost of images in tokens, by their size, as vendors document it."""

import math
import re
from dataclasses import dataclass
from typing import Protocol

UNKNOWN_SIDE = 1024
"""An image of unknown size is treated as a square with sides of this many pixels."""


class ImageCost(Protocol):
    """The rule by which a family of models counts an image."""

    def tokens(self, width: int, height: int) -> int:
        """The tokens of an image of that size in pixels."""
        ...


@dataclass(frozen=True, slots=True)
class ImageRule:
    """`base`, plus one token per number of pixels, at most `maximum`."""

    base: int = 85
    pixels_per_token: int = 1542
    maximum: int = 2500

    def tokens(self, width: int, height: int) -> int:
        """The tokens of an image of that size in pixels."""
        return min(self.maximum, self.base + math.ceil(width * height / self.pixels_per_token))


@dataclass(frozen=True, slots=True)
class TileRule:
    """OpenAI's rule: `base`, and `tile` for each square of 512 pixels of the reduced image."""

    base: int = 85
    tile: int = 170

    def tokens(self, width: int, height: int) -> int:
        """The tokens of an image of that size in pixels."""
        fits = min(1.0, 2048 / max(width, height, 1))
        scale = fits * min(1.0, 768 / max(1.0, min(width, height) * fits))
        across, down = (math.ceil(side * scale / 512) for side in (width, height))
        return self.base + self.tile * max(1, across) * max(1, down)


@dataclass(frozen=True, slots=True)
class PatchRule:
    """OpenAI's rule for small models: `factor` for each of at most 1536 squares of 32 pixels."""

    factor: float

    def tokens(self, width: int, height: int) -> int:
        """The tokens of an image of that size in pixels."""
        patches = math.ceil(width / 32) * math.ceil(height / 32)
        return math.ceil(min(patches, 1536) * self.factor)


@dataclass(frozen=True, slots=True)
class CropRule:
    """Gemini's rule: `crop` for a small image and for each part of a larger one."""

    crop: int = 258
    small: int = 384

    def tokens(self, width: int, height: int) -> int:
        """The tokens of an image of that size in pixels."""
        if width <= self.small and height <= self.small:
            return self.crop
        unit = min(768, max(256, int(min(width, height) / 1.5)))
        return self.crop * math.ceil(width / unit) * math.ceil(height / unit)


DEFAULT = ImageRule()

_FAMILIES: tuple[tuple[str, ImageCost], ...] = (
    (r"claude", ImageRule(base=0, pixels_per_token=750, maximum=1600)),
    (r"gpt-?4o-mini", TileRule(2833, 5667)),
    (r"gpt-?(4\.1|5[.\d]*)-nano", PatchRule(2.46)),
    (r"gpt-?(4\.1|5[.\d]*)-mini", PatchRule(1.62)),
    (r"\bo4-mini", PatchRule(1.72)),
    (r"gpt-?5", TileRule(70, 140)),
    (r"\bo[13]\b", TileRule(75, 150)),
    (r"gpt-?4|chatgpt", TileRule()),
    (r"gemma", ImageRule(base=256, maximum=256)),
    (r"gemini-[3-9]", ImageRule(base=1120, maximum=1120)),
    (r"gemini", CropRule()),
    (r"qwen", ImageRule(base=2, pixels_per_token=1024, maximum=16_384)),
    (r"pixtral|mi[sx]tral|magistral", ImageRule(base=0, pixels_per_token=784, maximum=4096)),
)


def image_cost_for(model: str) -> ImageCost:
    """The rule of the family that a model's name indicates; an average rule for other names."""
    name = model.lower()
    return next((cost for pattern, cost in _FAMILIES if re.search(pattern, name)), DEFAULT)
