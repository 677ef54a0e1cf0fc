"""The native objects of a model that makes vectors, created and freed together."""

import ctypes
import math
import os
import re
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

from shepherd.backends.base import ModelKind
from shepherd.backends.embedding import EmbeddingInput, Parts
from shepherd.backends.inprocess.raw import check_tokens
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import DECODED, NativeContext, Span
from shepherd.backends.llamacpp.native.fitting import fit_model, load_fitted
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import (
    ENCODERS,
    NativeAdapters,
    NativeModel,
    configured_adapters,
)
from shepherd.backends.llamacpp.native.params import (
    attention,
    batch_size,
    context_params,
    model_params,
)
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BackendError, ContextFullError, InvalidRequestError, ModelLoadError

MAX_SEQUENCES = 64
"""Texts in one batch."""

USUAL_CONTEXT = 8192
"""The longest text in tokens, unless `context_size` is set: memory grows with it."""


class Pooling(IntEnum):
    """How the vectors of a text's tokens become one, by llama.cpp's numbers."""

    NONE = 0
    MEAN = 1
    CLS = 2
    LAST = 3
    RANK = 4


class PooledContext:
    """A context for texts of at most `size` tokens; one thread only.

    Texts are computed together in batches of about `batch_size` tokens. Nothing stays in memory
    between them.
    """

    def __init__(self, model: NativeModel, settings: LlamaCppSection, pooling: Pooling) -> None:
        """Reserve the memory; raises ModelLoadError if there is not enough.

        A file without a pooling type means `Pooling.MEAN`.
        """
        size = settings.context_size or USUAL_CONTEXT
        self.size = min(size, model.trained_context) if model.trained_context > 0 else size
        self.batch_size = min(self.size, batch_size(settings))
        self.pooling = pooling if pooling is not Pooling.NONE else Pooling.MEAN
        limited = settings.model_copy(update={"context_size": self.size, "parallel": 1})
        params = context_params(limited, MAX_SEQUENCES, model.traits)
        # All tokens of a text are pooled, and so must be computed at once.
        params.flash_attn_type, params.n_ubatch = attention(limited, model.traits, self.size)
        params.n_batch = self.size
        params.embeddings = True
        params.pooling_type = int(self.pooling)
        self.native = NativeContext(model, params)
        self.handle = self.native.handle
        self.sequences = self.native.sequences
        ranks = self.pooling is Pooling.RANK
        self.width: int = 1 if ranks else bindings().llama_model_n_embd_out(model.handle)
        """The numbers in a vector; a score is one number."""

    def compute(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """The vector of each text, at most `sequences` texts of `size` tokens together.

        Raises BackendError if llama.cpp can't compute them.
        """
        spans = [
            Span(i, 0, text, wants_logits=True, outputs=len(text)) for i, text in enumerate(texts)
        ]
        try:
            if self.native.decode(spans) != DECODED:
                raise BackendError("llama.cpp has no room for a batch of texts")
            return [self._vector(sequence) for sequence in range(len(texts))]
        finally:
            self.native.clear()

    def close(self) -> None:
        """Free the context; safe to call twice."""
        self.native.close()

    def _vector(self, sequence: int) -> list[float]:
        """The vector of a computed text; raises BackendError if it has none, or no numbers."""
        pointer = bindings().llama_get_embeddings_seq(self.handle, sequence)
        if not pointer:
            raise BackendError("llama.cpp gives no vector for a text")
        numbers = array("f", ctypes.string_at(pointer, 4 * self.width))
        if not all(map(math.isfinite, numbers)):
            raise BackendError("the model's vector for a text is not a number")
        return numbers.tolist()


def kind_of(pooling: Pooling | None) -> ModelKind:
    """What a model makes that pools like this, None for not at all."""
    if pooling is None:
        return ModelKind.TEXT
    return ModelKind.RERANKING if pooling is Pooling.RANK else ModelKind.EMBEDDING


def pooling_of(path: Path) -> Pooling | None:
    """How the model at `path` pools, None for a model that writes text.

    `Pooling.NONE` is an encoder whose file does not say it. Raises ModelLoadError for a damaged
    file.
    """
    values = check_model_file(path).values
    architecture: object = values.get("general.architecture")
    number: object = values.get(f"{architecture}.pooling_type")
    pooling = next((kind for kind in Pooling if kind == number), Pooling.NONE)
    if pooling is Pooling.NONE and architecture not in ENCODERS:
        return None
    return pooling


EXACT_CHARACTERS = 256 * 1024
"""A longer text is counted in slices until it is certain that it does not fit."""

_PLACES = re.compile(r"(\{query\}|\{document\})")


class TextReader:
    """Reads inputs of at most `size` tokens, as llama.cpp's server does."""

    def __init__(self, model: NativeModel, size: int) -> None:
        self._vocab = vocab = model.vocab
        self._size = size
        self._template = model.chat_template("rerank")
        self._controls = tuple(filter(None, (vocab.text(token) for token in vocab.controls)))

    def inputs(self, request: EmbeddingInput) -> list[list[int]]:
        """The tokens of each input; raises ContextFullError and InvalidRequestError."""
        return [self._input(parts, truncate=request.truncate) for parts in request.inputs]

    def pairs(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """The tokens of the query with each document; raises ContextFullError."""
        for text in (query, *documents):
            self._check_length(text)
        return [self._fitting(self._pair(query, document)) for document in documents]

    def _input(self, parts: Parts, *, truncate: bool) -> list[int]:
        """The tokens of one input, which may consist of texts and tokens."""
        tokens: list[int] = []
        for index, part in enumerate(parts):
            if isinstance(part, str):
                tokens += self._tokens(part, begins=index == 0, truncate=truncate)
            else:
                _check_token(self._vocab, part)
                tokens.append(part)
        if not tokens:
            raise InvalidRequestError("An input has no tokens for this model.", "input")
        if truncate and len(tokens) > self._size:
            tokens = [*tokens[: self._size - 1], tokens[-1]]  # which ends the text
        return self._fitting(tokens)

    def _tokens(self, text: str, *, begins: bool, truncate: bool) -> list[int]:
        """The tokens of a text, with those of the model's own if it `begins` an input."""
        if truncate:  # no need to read what is cut off anyway
            text = text[:EXACT_CHARACTERS]
        self._check_length(text)
        return self._vocab.tokenize(text, parse_special=True, add_special=begins)

    def _pair(self, query: str, document: str) -> list[int]:
        """Both texts, divided as the model was trained: by its template or by its separators."""
        if self._template:
            return self._templated(query, document)
        vocab = self._vocab
        end = vocab.eos if vocab.eos >= 0 else vocab.sep  # -1 is no token
        begins = [vocab.bos] if vocab.adds_bos else []
        ends = [end] if vocab.adds_eos else []
        divides = [vocab.sep] if vocab.adds_sep else []
        first, second = vocab.tokenize(query), vocab.tokenize(document)
        return [*begins, *first, *ends, *divides, *second, *ends]

    def _templated(self, query: str, document: str) -> list[int]:
        """The model's own template with both texts; control tokens in them are plain text."""
        values = {"{query}": query, "{document}": document}
        pieces = _PLACES.split(self._template)
        # As a whole, words at the borders of pieces become the tokens that the model has learned.
        if not any(control in text for control in self._controls for text in (query, document)):
            whole = "".join(values.get(piece, piece) for piece in pieces)
            return self._vocab.tokenize(whole, parse_special=True)
        tokens: list[int] = []
        for piece in pieces:
            is_plain = piece in values
            tokens += self._vocab.tokenize(values.get(piece, piece), parse_special=not is_plain)
        return tokens

    def _fitting(self, tokens: list[int]) -> list[int]:
        """The tokens; raises ContextFullError if they don't fit."""
        if len(tokens) > self._size:
            raise _too_long(len(tokens), self._size)
        return tokens

    def _check_length(self, text: str) -> None:
        """Raise ContextFullError for a text that is far too long, without reading all of it."""
        if len(text) <= EXACT_CHARACTERS:
            return
        tokens = self._vocab.count_if_far_over(text, self._size)
        if tokens:
            raise _too_long(tokens, self._size)


def _check_token(vocab: Vocab, token: int) -> None:
    """Raise InvalidRequestError, for the parameter `input`, unless the vocabulary has the token."""
    try:
        check_tokens(vocab, (token,))
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error), "input") from error


def _too_long(tokens: int, size: int) -> ContextFullError:
    """The error for an input of so many tokens where `size` are possible."""
    message = f"input ({tokens} tokens) exceeds the available context size ({size} tokens)"
    return ContextFullError(message, tokens - size, tokens)


class PooledEngine(Struct, frozen=True):
    """A model, its context and its reader; the context belongs to one thread."""

    model: NativeModel
    context: PooledContext
    reader: TextReader

    @classmethod
    def load(cls, path: Path, settings: LlamaCppSection, pooling: Pooling) -> "PooledEngine":
        """Load a model file; raises ModelLoadError, or ConfigError for a bad variable."""
        size = settings.context_size or USUAL_CONTEXT
        settings = settings.model_copy(update={"rpc_servers": []})  # small enough for one machine
        whole = {"context_size": size, "n_batch": size, "ubatch": size}  # a text is one batch
        fit = fit_model(check_model_file(path), settings.model_copy(update=whole))
        return load_fitted(fit, lambda fit: cls._load(path, fit.applied(settings), pooling))[0]

    @classmethod
    def _load(cls, path: Path, settings: LlamaCppSection, pooling: Pooling) -> "PooledEngine":
        """As `load`, exactly with these settings."""
        adapters = configured_adapters(settings)
        with ExitStack() as resources:
            model = NativeModel(path, model_params(settings, os.environ))
            resources.callback(model.close)
            if not model.vocab.size:
                raise ModelLoadError(f"{path} has no vocabulary.")
            loaded = NativeAdapters(model, adapters)
            context = PooledContext(model, settings, pooling)
            resources.callback(context.close)
            loaded.apply(context.handle)
            engine = cls(model, context, TextReader(model, context.size))
            resources.pop_all()  # the engine frees them from here on
            return engine

    def close(self) -> None:
        """Free the context, then the model."""
        self.context.close()
        self.model.close()
