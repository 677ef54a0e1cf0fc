"""The native objects of a model that makes vectors, created and freed together."""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shepherd.backends.embedding import EmbeddingInput, Parts
from shepherd.backends.inprocess.prompt.raw import check_tokens
from shepherd.backends.llamacpp.embedding.pooling import USUAL_CONTEXT, PooledContext, Pooling
from shepherd.backends.llamacpp.native.fitting import fit_model, load_fitted
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeAdapters, NativeModel, configured_adapters
from shepherd.backends.llamacpp.native.params import model_params
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ContextFullError, InvalidRequestError, ModelLoadError

EXACT_CHARACTERS = 256 * 1024
"""A longer text is counted in slices until it is certain that it does not fit."""

_SLICE = 8 * 1024
_MARGIN = 2
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
        return self._cut(tokens) if truncate else self._fitting(tokens)

    def _tokens(self, text: str, *, begins: bool, truncate: bool) -> list[int]:
        if truncate:
            text = text[:EXACT_CHARACTERS]
        self._check_length(text)
        return self._vocab.tokenize(text, parse_special=True, add_special=begins)

    def _pair(self, query: str, document: str) -> list[int]:
        if self._template:
            return self._templated(query, document)
        vocab = self._vocab
        end = vocab.eos if vocab.eos >= 0 else vocab.sep
        ends = [end] if vocab.adds_eos else []
        divides = [vocab.sep] if vocab.adds_sep else []
        begins = [vocab.bos] if vocab.adds_bos else []
        first, second = vocab.tokenize(query), vocab.tokenize(document)
        return [*begins, *first, *ends, *divides, *second, *ends]

    def _templated(self, query: str, document: str) -> list[int]:
        """The model's own template with both texts; control tokens in them are plain text."""
        values = {"{query}": query, "{document}": document}
        pieces = _PLACES.split(self._template)
        if not any(control in text for control in self._controls for text in (query, document)):
            whole = "".join(values.get(piece, piece) for piece in pieces)
            return self._vocab.tokenize(whole, parse_special=True)
        tokens: list[int] = []
        for piece in pieces:
            plain = piece in values
            tokens += self._vocab.tokenize(values.get(piece, piece), parse_special=not plain)
        return tokens

    def _cut(self, tokens: list[int]) -> list[int]:
        """The tokens that fit, with the last one, which ends the text."""
        if len(tokens) <= self._size:
            return tokens
        return [*tokens[: self._size - 1], tokens[-1]]

    def _fitting(self, tokens: list[int]) -> list[int]:
        if len(tokens) > self._size:
            raise _too_long(len(tokens), self._size)
        return tokens

    def _check_length(self, text: str) -> None:
        """Raise ContextFullError for a text that is far too long, without reading all of it."""
        if len(text) <= EXACT_CHARACTERS:
            return
        tokens = 0
        for start in range(0, len(text), _SLICE):
            tokens += len(self._vocab.tokenize(text[start : start + _SLICE]))
            if tokens > _MARGIN * self._size:
                raise _too_long(tokens, self._size)


def _check_token(vocab: Vocab, token: int) -> None:
    try:
        check_tokens(vocab, (token,))
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error), "input") from error


def _too_long(tokens: int, size: int) -> ContextFullError:
    message = f"input ({tokens} tokens) exceeds the available context size ({size} tokens)"
    return ContextFullError(message, tokens - size, tokens)


@dataclass(frozen=True, slots=True)
class PooledEngine:
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
