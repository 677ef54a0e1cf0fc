"""The layer of a model that predicts the token after the next one (MTP), as a source of drafts.

It reads each token with the hidden state behind the token before it. It has a cache of its own, for
this layer alone. What it has not read, such as a prompt from the cache, it drafts without.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from shepherd.backends.llamacpp.cache.prefixes import common_prefix
from shepherd.backends.llamacpp.native.bindings import native_functions
from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.gguf import GgufHeader
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.scheduling.draft_model import Drafter, DraftRequest
from shepherd.backends.llamacpp.scheduling.drafts import MAX_DRAFT
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.errors import ModelLoadError

_ARCHITECTURES = frozenset({"qwen35", "qwen35moe"})
"""Others may end the process: llama.cpp asserts what it expects of their layers."""

_TENSORS = ("attn_q", "nextn.eh_proj", "nextn.enorm", "nextn.hnorm")
_CONTEXT_TYPE = 1
_FLOAT = ctypes.sizeof(ctypes.c_float)

_SET, _ROWS, _ROW = (
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "_Z26llama_get_embeddings_nextnP13llama_context",
    "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
)
"""Functions of C++ that the header of C does not have yet (`llama-ext.h`)."""


def has_head(header: GgufHeader) -> bool:
    """Whether a file has such a layer, and this build of llama.cpp can use it."""
    architecture = str(header.values.get("general.architecture"))
    layers = header.values.get(f"{architecture}.block_count")
    if architecture not in _ARCHITECTURES or not isinstance(layers, int):
        return False
    if header.values.get(f"{architecture}.nextn_predict_layers") != 1:
        return False
    has_tensors = all(f"blk.{layers - 1}.{name}.weight" in header.weights for name in _TENSORS)
    return has_tensors and _functions() is not None


def _functions() -> Mapping[str, Any] | None:
    """The functions for hidden states; None if this build does not export them."""
    handle = ctypes.c_void_p
    signatures = {
        _SET: (None, handle, ctypes.c_bool, ctypes.c_bool),
        _ROWS: (handle, handle),
        _ROW: (handle, handle, ctypes.c_int32),
    }
    try:
        library = native_functions(signatures, prefix="")
    except ModelLoadError:
        return None
    return {name: getattr(library, name) for name in signatures}


class _Memory(Struct):
    """What the layer knows of a sequence: its `tokens`, of which it has read those from `first` on.

    `states` are the hidden states behind the last tokens.
    """

    owner: object = None
    tokens: list[int] = field(default_factory=list[int])
    first: int = 0
    states: bytes = b""


class MtpHead(Drafter):
    """The layer, which reads what its model decodes."""

    def __init__(self, model: NativeModel, target: NativeContext, params: Any) -> None:
        """`params` are those of the `target`, whose hidden states are read.

        Raises ModelLoadError if there is not enough memory.
        """
        functions = _functions()
        assert functions is not None  # `has_head`
        self._functions = functions
        params.ctx_type, params.ctx_other, params.n_rs_seq = _CONTEXT_TYPE, target.handle, 0
        self._target = target
        super().__init__(NativeContext(model, params))
        self._width: int = _FLOAT * self._lib.llama_model_n_embd_out(model.handle)
        self._context.take_states(self._width)
        functions[_SET](target.handle, True, False)  # of all tokens
        functions[_SET](self._context.handle, True, True)  # of those with logits
        self._memories = [_Memory() for _ in range(target.sequences)]
        self._last_states: dict[int, bytes] = {}
        """The hidden state behind the last drafted token of each sequence."""

    def note(self, jobs: Sequence[Job], spans: Sequence[Span]) -> None:
        rows: int = self._functions[_ROWS](self._target.handle) or 0
        known: list[Span] = []
        states: list[bytes] = []
        for job, span in zip(jobs, spans, strict=True):
            size = len(span.tokens) * self._width
            decoded = ctypes.string_at(rows, size) if rows else b""
            rows += size
            if not decoded or job.images:  # an image has no tokens that it could read
                self._forget(span.sequence)
                continue
            before = self._align(job, span)
            own = self._memories[span.sequence]
            known.append(span._replace(wants_logits=False))
            states += [before, decoded[: -self._width]]
            own.tokens.extend(span.tokens)
            own.states = decoded[-self._width * (MAX_DRAFT + 1) :]
        if known:
            self._context.put_states(b"".join(states))
            self._decode(known)

    def _is_ready(self, request: DraftRequest) -> bool:
        """Whether all tokens but the last are known, and the state behind them."""
        own = self._memories[request.sequence]
        is_next = own.owner is request.owner and len(own.tokens) == len(request.tokens) - 1
        self._last_states[request.sequence] = own.states[-self._width :]
        return is_next and bool(own.states)

    def _read(self, spans: Sequence[Span]) -> bool:
        self._context.put_states(b"".join(self._last_states[span.sequence] for span in spans))
        is_decoded = self._decode(spans)
        for index, span in enumerate(spans if is_decoded else ()):
            row: int = self._functions[_ROW](self._context.handle, index)
            self._last_states[span.sequence] = ctypes.string_at(row, self._width)
        return is_decoded

    def _end_drafts(self, requests: Sequence[DraftRequest]) -> None:
        for request in requests:
            self._context.remove(request.sequence, len(self._memories[request.sequence].tokens))

    def _align(self, job: Job, span: Span) -> bytes:
        """Forget what is not before the span; returns the hidden state behind the token before it.

        Without one it is zero, as before the first token.
        """
        own, start = self._memories[span.sequence], span.start
        if own.owner is not job or start > len(own.tokens):
            known = common_prefix(own.tokens, job.tokens[:start])
            if not own.first <= start <= known:
                self._forget(span.sequence)
                own = self._memories[span.sequence]
                own.tokens, own.first = job.tokens[:start], start
            own.owner = job
        behind = len(own.tokens) - start  # rejected tokens of a draft
        if behind:
            self._context.remove(span.sequence, start)
            del own.tokens[start:]
            own.states = own.states[: -behind * self._width]
        return own.states[-self._width :] or bytes(self._width)

    def _forget(self, sequence: int) -> None:
        self._context.remove(sequence, 0)
        self._memories[sequence] = _Memory()

    def _forget_all(self) -> None:
        self._memories = [_Memory() for _ in self._memories]
