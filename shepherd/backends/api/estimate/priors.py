"""The expected properties of a model family's tokenizer before the first answer."""

import re
from dataclasses import dataclass, replace

from shepherd.backends.api.estimate import images


@dataclass(frozen=True, slots=True)
class FamilyPrior:
    """Tokens per character, by kind of character, and the tokens around texts.

    `cjk` are Chinese, Japanese and Korean characters, `other` those of other alphabets and emoji.
    Prose is mostly alphabetic, code and JSON have many symbols. `tools` is added once if there are
    any tools.
    """

    alphabetic: float = 0.23
    digits: float = 0.5
    symbols: float = 0.55
    spaces: float = 0.1
    cjk: float = 0.9
    other: float = 0.5
    message: int = 4
    call: int = 12
    tool: int = 10
    tools: int = 30
    prompt: int = 4
    image: images.ImageCost = images.DEFAULT


DEFAULT = FamilyPrior()

_FAMILIES: tuple[tuple[str, FamilyPrior], ...] = (
    (
        r"claude",
        FamilyPrior(0.26, 0.6, 0.65, 0.12, 1.1, 0.6, tools=340),
    ),
    (
        r"gpt-?4o|gpt-?4\.1|gpt-?5|gpt-oss|chatgpt|\bo[134]\b",
        FamilyPrior(0.22, 0.4, cjk=0.7, other=0.35),
    ),
    (r"gpt-?4|gpt-?3\.5", FamilyPrior(0.22, 0.4, cjk=1.1, other=0.55)),
    (r"gemini|gemma", FamilyPrior(0.22, 1.0, 0.6, cjk=0.65, other=0.4)),
    (r"llama-?2|vicuna|yi-", FamilyPrior(0.27, 1.0, 0.7, cjk=1.5, other=0.7)),
    (r"llama", FamilyPrior(0.22, 0.4, cjk=0.75, other=0.45)),
    (r"mi[sx]tral|codestral|devstral|magistral", FamilyPrior(0.24, 1.0, 0.65, cjk=0.9, other=0.45)),
    (r"qwen|qwq", FamilyPrior(0.22, 1.0, cjk=0.65)),
    (r"deepseek|kimi|glm|minimax", FamilyPrior(0.22, 0.5, cjk=0.6)),
)


def prior_for(model: str) -> FamilyPrior:
    """The prior of the family that a model's name indicates; an average prior for other names."""
    name = model.lower()
    prior = next((prior for pattern, prior in _FAMILIES if re.search(pattern, name)), DEFAULT)
    return replace(prior, image=images.image_cost_for(model))
