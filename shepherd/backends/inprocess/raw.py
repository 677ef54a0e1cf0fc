"""The tokens of raw prompts, and of texts between which a model writes."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from shepherd.backends.inprocess.fragments import Tail
from shepherd.backends.inprocess.prompt import Prompt
from shepherd.backends.inprocess.special import Vocabulary
from shepherd.errors import InvalidRequestError
from shepherd.session import MEDIA_MARK, Infill, RawPrompt

_SNIPPET = "\n\n--- snippet ---\n\n"
_REPOSITORY, _FILE = "myproject\n", "filename\n"
"""What llama.cpp's server writes for a repository and a file without a name."""

Check = Callable[[str], None]


class InfillTokens(NamedTuple):
    """The tokens around a gap; -1 for what the model does not have."""

    prefix: int
    suffix: int
    middle: int
    repository: int
    file: int


class RawVocabulary(Vocabulary, Protocol):
    """A vocabulary with numbers from 0 to `size`."""

    @property
    def size(self) -> int: ...

    @property
    def infill(self) -> InfillTokens | None:
        """None if the model can't write between two texts."""
        ...


def raw_prompt(
    vocab: RawVocabulary,
    prompt: RawPrompt | Infill,
    check: Check,
    images: Sequence[Sequence[int]] = (),
) -> Prompt:
    """The prompt of a raw request; `check` sees each text before its tokens.

    `images` are the tokens of its images. Raises InvalidRequestError for what the model does not
    have.
    """
    if isinstance(prompt, Infill):
        tokens = _infill(vocab, prompt, check)
    else:
        begins = bool(prompt.parts) and isinstance(prompt.parts[0], str)
        parts = _with_images(prompt.parts, images) if images else prompt.parts
        tokens = join_parts(vocab, parts, begins=begins, check=check)
    return Prompt(tokens, Tail("", ()), "")


def join_parts(
    vocab: RawVocabulary,
    parts: Sequence[str | int | Sequence[int]],
    *,
    special: bool = True,
    begins: bool = False,
    check: Check | None = None,
) -> list[int]:
    """The tokens of texts, numbers and images; see `TextModel.tokenize`."""
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            if check is not None:
                check(part)
            tokens += vocab.tokenize(part, parse_special=special)
        elif isinstance(part, int):
            check_tokens(vocab, (part,))
            tokens.append(part)
        else:
            tokens += part
    if begins and vocab.adds_bos and tokens[:1] != [vocab.bos]:
        tokens.insert(0, vocab.bos)
    return tokens


def _with_images(
    parts: Sequence[str | int], images: Sequence[Sequence[int]]
) -> list[str | int | Sequence[int]]:
    """The parts with images in the place of their marks."""
    waiting = iter(images)
    whole: list[str | int | Sequence[int]] = []
    for part in parts:
        first, *others = part.split(MEDIA_MARK) if isinstance(part, str) else (part,)
        whole.append(first)
        for text in others:
            whole += [next(waiting), text]
    return whole


def check_tokens(vocab: RawVocabulary, tokens: Sequence[int]) -> None:
    """Raise InvalidRequestError for a number that is not a token's."""
    for token in tokens:
        if not 0 <= token < vocab.size:
            message = f"there is no token {token}; this model has tokens 0 to {vocab.size - 1}"
            raise InvalidRequestError(message, "prompt")


def _infill(vocab: RawVocabulary, request: Infill, check: Check) -> list[int]:
    """The files, then the texts around the gap, as llama.cpp's server orders them."""
    marks = vocab.infill
    if marks is None:
        raise InvalidRequestError(
            "This model can't write between two texts: its vocabulary has no tokens for that.",
            "suffix",
        )
    for text in (request.prefix, request.suffix, request.start, *sum(request.files, ())):
        check(text)
    tokens = [token for part in _files(marks, request) for token in _tokens(vocab, part)]
    if vocab.adds_bos:
        tokens.append(vocab.bos)
    gap = (marks.prefix, request.prefix, request.start, marks.suffix, request.suffix, marks.middle)
    return tokens + [token for part in gap for token in _tokens(vocab, part)]


def _files(marks: InfillTokens, request: Infill) -> Iterator[int | str]:
    if request.files and marks.repository >= 0:
        yield from (marks.repository, _REPOSITORY)
    for name, text in request.files:
        yield from (marks.file, f"{name}\n") if marks.file >= 0 else (_SNIPPET,)
        yield text
    if request.files and marks.file >= 0:
        yield from (marks.file, _FILE)


def _tokens(vocab: RawVocabulary, part: int | str) -> list[int]:
    """Texts are plain here: what stands in a file must not end the gap."""
    return [part] if isinstance(part, int) else vocab.tokenize(part)
