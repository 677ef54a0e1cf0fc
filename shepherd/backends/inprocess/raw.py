"""The tokens of raw prompts, and of texts between which a model writes."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from shepherd.backends.inprocess.fragments import Tail, with_bos
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
        # A prompt that begins with a token's number says itself whether it begins with BOS.
        begins = bool(prompt.parts) and isinstance(prompt.parts[0], str)
        parts = _with_images(prompt.parts, images) if images else prompt.parts
        tokens = join_parts(vocab, parts, begins=begins, check=check)
    return Prompt(tokens, tail=Tail(text="", tokens=()), text_tail="")


def join_parts(
    vocab: RawVocabulary,
    parts: Sequence[str | int | Sequence[int]],
    *,
    special: bool = True,
    begins: bool = False,
    check: Check | None = None,
) -> list[int]:
    """The tokens of texts, of tokens' numbers and of images, which are sequences of tokens.

    Control tokens in texts count if `special`. BOS comes first if the prompt `begins` here and the
    vocabulary has one. `check` sees each text before it is tokenized.
    """
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
    return with_bos(tokens, vocab) if begins else tokens


def _with_images(
    parts: Sequence[str | int], images: Sequence[Sequence[int]]
) -> list[str | int | Sequence[int]]:
    """The parts with images in the place of their marks."""
    next_images = iter(images)
    whole: list[str | int | Sequence[int]] = []
    for part in parts:
        before, *others = part.split(MEDIA_MARK) if isinstance(part, str) else (part,)
        whole.append(before)
        for text_behind_image in others:
            whole += [next(next_images), text_behind_image]
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
    bos = (vocab.bos,) if vocab.adds_bos else ()
    gap = (marks.prefix, request.prefix, request.start, marks.suffix, request.suffix, marks.middle)
    tokens: list[int] = []
    for part in (*_files(marks, request), *bos, *gap):
        if isinstance(part, int):
            tokens.append(part)
        else:
            check(part)
            tokens += vocab.tokenize(part)  # plain text: what is in a file must not end the gap
    return tokens


def _files(marks: InfillTokens, request: Infill) -> Iterator[int | str]:
    """The tokens and texts of the other files, then the name of the file with the gap."""
    has_file_mark = marks.file >= 0
    if request.files and marks.repository >= 0:
        yield from (marks.repository, _REPOSITORY)
    for name, text in request.files:
        yield from (marks.file, f"{name}\n") if has_file_mark else (_SNIPPET,)
        yield text
    if request.files and has_file_mark:
        yield from (marks.file, _FILE)
