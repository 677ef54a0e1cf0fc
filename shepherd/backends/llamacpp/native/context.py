"""A llama.cpp context: batches in, logits kept inside, and its memory per sequence."""

import ctypes
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from shepherd.backends.llamacpp.native import devices
from shepherd.backends.llamacpp.native.batch import Batch, ImageBatch, ImageSpan, Span, pad
from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.model import NativeModel, last_error
from shepherd.backends.llamacpp.native.params import FLASH_OFF
from shepherd.errors import BackendError

DECODED = 0
NO_ROOM = 1
ABORTED = 2

COPY_WHOLLY = frozenset({"deepseek4"})
"""Architectures whose memory aborts if a part of a sequence is copied (`llama_kv_cache_dsv4`)."""

ONE_SEQUENCE = frozenset({"plamo2"})
"""Architectures whose states llama.cpp writes to a wrong place, or aborts, if a batch has tokens of
several sequences (`build_plamo2_mamba_layer`)."""


class NativeContext:
    """A context; one owner thread only. Counts decoded tokens, batches and their parts."""

    def __init__(
        self, model: NativeModel, params: Any, clock: Callable[[], float] = perf_counter
    ) -> None:
        """Reserve the memory; raises ModelLoadError if there is not enough."""
        self._lib = bindings()
        self._workers = model.workers
        self.vocab = model.vocab
        native_log.take_errors()
        self._handle: Any = self._lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            size = params.n_ctx or model.trained_context
            raise model.load_error(f"No context of {size} tokens can be made")
        self._memory: Any = self._lib.llama_get_memory(self._handle)
        self.size: int = self._lib.llama_n_ctx_seq(self._handle)
        self.batch_size: int = self._lib.llama_n_batch(self._handle)
        self.ubatch_size: int = self._lib.llama_n_ubatch(self._handle)
        self.sequences: int = self._lib.llama_n_seq_max(self._handle)
        self.rollback: int = self._lib.llama_n_rs_seq(self._handle)
        """How many of the tokens that were decoded last the state of a sequence can forget."""
        self._rolled_back: set[int] = set()  # sequences whose state is that of an earlier token
        self.decoded_tokens = self.decoded_batches = self.decoded_parts = 0
        self.returns_early = devices.has_gpu()
        """Whether `decode` only queues a batch, as on a GPU; `synchronize` waits for it."""
        self.can_interrupt = not devices.has_gpu() and model.workers is None
        """Whether llama.cpp can end a batch early."""
        self.interrupt, self.urgent = Interrupt(), Interrupt()
        """Set when any command comes, and when a person's request comes."""
        self.stopwatch = Stopwatch(self, clock)
        self.limits = devices.device_limits(flash=params.flash_attn_type != FLASH_OFF)
        self.keeps_windows = bool(params.swa_full)
        """Whether layers with a sliding window keep all tokens."""
        self.has_streams = self.sequences > 1 and not params.kv_unified
        """Whether each sequence has its own cells."""
        self._has_window = model.window > 0
        self._copies_wholly = model.metadata("general.architecture") in COPY_WHOLLY
        self.rows = 1
        """Tokens and outputs to whose multiples each part of a batch is padded; 1 pads nothing."""
        self._places: Sequence[int] = ()
        try:
            self._batch = Batch(self.batch_size)
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> Any:
        return self._handle

    def decode(self, spans: Sequence[Span], interrupt: "Interrupt | None" = None) -> int:
        """Decode a batch; the logits of a span are at its last indexes.

        Returns DECODED, or NO_ROOM with the memory unchanged, or ABORTED if `interrupt` has ended
        it. Raises BackendError on any other result. After that and ABORTED the caller must check
        the positions in memory. Raises WorkerLostError if the result is worthless, because an RPC
        worker was lost.
        """
        sequences = [span.sequence for span in spans]
        if self.rows == 1:
            count = self._batch.fill(spans)
            if interrupt is None or not self.can_interrupt:
                return self._decode(self._batch.native, count, sequences)
            interrupt.attach(self._handle)
            try:
                return self._decode(self._batch.native, count, sequences)
            finally:
                interrupt.detach(self._handle)
        padded, self._places = pad(spans, self.rows)
        self._batch.fill(padded)
        count = sum(len(span.tokens) for span in spans)
        code = self._decode(self._batch.native, count, sequences)
        if code == DECODED:
            for span, longer in zip(spans, padded, strict=True):
                if len(longer.tokens) > len(span.tokens):  # the padding must not stay in memory
                    self.remove(span.sequence, span.start + len(span.tokens))
        return code

    def take_states(self, width: int) -> None:
        """Let batches have a hidden state of `width` bytes for each token; see `put_states`."""
        self._batch.take_states(width)

    def put_states(self, states: bytes) -> None:
        """The hidden states of the next batch's tokens, in their order."""
        self._batch.put_states(states)

    def decode_image(self, span: ImageSpan) -> int:
        """Decode tokens of an image; the results and errors are those of `decode`.

        Without causal attention there may be at most `ubatch_size` tokens.
        """
        batch = ImageBatch(span, min(self.rows, span.tokens))
        self._places = range(span.tokens)
        if span.causal:
            return self._decode(batch.native, span.tokens, [span.sequence])
        self._lib.llama_set_causal_attn(self._handle, False)
        try:
            return self._decode(batch.native, span.tokens, [span.sequence])
        finally:
            self._lib.llama_set_causal_attn(self._handle, True)

    def _decode(self, batch: Any, count: int, sequences: Sequence[int]) -> int:
        """Compute a batch of llama.cpp's with `count` tokens, with the results of `decode`."""
        code: int = self._lib.llama_decode(self._handle, batch)
        if self._workers is not None:
            self.synchronize()  # a worker that is lost shows only when its results are there
            self._workers.check()
        if code == DECODED:
            self.decoded_tokens += count
            self.decoded_batches += 1
            self.decoded_parts += len(sequences)
            self._rolled_back.difference_update(sequences)
        elif code not in (NO_ROOM, ABORTED):
            raise BackendError(f"llama.cpp could not compute a batch ({code}): {last_error()}")
        return code

    def pad_to(self, rows: int) -> None:
        """Pad each part of a batch from now on, which leaves less room for its tokens."""
        padding = rows - self.rows  # the most tokens behind one part; for 1 row there are none
        self.rows = rows
        self.size -= padding
        self.batch_size -= self.sequences * padding

    def batch_index(self, index: int) -> int:
        """The index in llama.cpp's last batch of a token of the last spans."""
        return self._places[index] if self.rows > 1 else index

    def synchronize(self) -> None:
        """Wait until all queued batches are computed. Reading results waits too."""
        self._lib.llama_synchronize(self._handle)

    def position_range(self, sequence: int) -> tuple[int, int]:
        """First and last position in memory, (-1, -1) when the sequence is empty."""
        first: int = self._lib.llama_memory_seq_pos_min(self._memory, sequence)
        return first, self.last_position(sequence)

    def last_position(self, sequence: int) -> int:
        """The last position in memory, -1 when the sequence is empty."""
        position: int = self._lib.llama_memory_seq_pos_max(self._memory, sequence)
        return position

    def remove(self, sequence: int, start: int) -> bool:
        """Drop the sequence from `start` on; False if this kind of memory can't."""
        removed: bool = self._lib.llama_memory_seq_rm(self._memory, sequence, start, -1)
        if start == 0:
            self._rolled_back.discard(sequence)
        elif removed and self.rollback:
            self._rolled_back.add(sequence)
        return removed

    def close_gap(self, sequence: int, start: int, end: int) -> None:
        """Drop the tokens from `start` to `end` and move later ones; requires `can_shift`."""
        self._lib.llama_memory_seq_rm(self._memory, sequence, start, end)
        self._lib.llama_memory_seq_add(self._memory, sequence, end, -1, start - end)

    @property
    def can_shift(self) -> bool:
        """Whether tokens can be moved to other positions."""
        shifts: bool = self._lib.llama_memory_can_shift(self._memory)
        return shifts

    def copy(self, source: int, target: int, length: int) -> None:
        """Share the first `length` tokens of a sequence with an empty one.

        If each sequence has its own cells, all tokens are copied, or none if there is no memory. A
        saved state lacks what a sliding window has left behind, so all cells are copied instead.
        """
        # llama.cpp aborts if sequences share a state that one of them has rolled back
        is_apart = self.has_streams and not self._has_window
        if is_apart or self._copies_wholly or source in self._rolled_back:
            self.restore(target, self.save(source, partial=False), partial=False)
            return
        length = -1 if self.has_streams else length  # llama.cpp copies whole streams only
        self._lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def share_beginning(self, source: int, target: int, length: int) -> None:
        """Let a sequence use the cells of another one for the tokens that both begin with.

        Where parts of a sequence can't be shared, it keeps its own.
        """
        if self.has_streams or self._copies_wholly:
            return
        self._lib.llama_memory_seq_rm(self._memory, target, 0, length)
        self._lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def state_size(self, sequence: int) -> int:
        """The size of a sequence's whole state, in bytes."""
        size: int = self._lib.llama_state_seq_get_size_ext(self._handle, sequence, 0)
        return size

    def save(self, sequence: int, *, partial: bool) -> bytearray:
        """The sequence's state; `partial` omits memory that can be cut. Empty on failure."""
        flags = self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else 0
        size: int = self._lib.llama_state_seq_get_size_ext(self._handle, sequence, flags)
        if size == 0:
            return bytearray()
        state = bytearray(size)
        buffer = (ctypes.c_uint8 * size).from_buffer(state)
        written: int = self._lib.llama_state_seq_get_data_ext(
            self._handle, buffer, size, sequence, flags
        )
        # Instead of what a lost worker had, the state would have zeros.
        has_lost_worker = self._workers is not None and self._workers.lost
        return state if written == size and not has_lost_worker else bytearray()

    def restore(self, sequence: int, state: bytearray, *, partial: bool) -> bool:
        """Restore a saved state; after False the sequence must be cleared."""
        flags = self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else 0
        buffer = (ctypes.c_uint8 * len(state)).from_buffer(state)
        read_bytes: int = self._lib.llama_state_seq_set_data_ext(
            self._handle, buffer, len(state), sequence, flags
        )
        self._rolled_back.discard(sequence)
        return read_bytes > 0

    def warm_up(self) -> None:
        """Read all weights once, also those of unused experts; drops all sequences."""
        self._lib.llama_set_warmup(self._handle, True)
        try:
            self.decode([Span(0, 0, [0], wants_logits=True)])
        finally:
            self._lib.llama_set_warmup(self._handle, False)
            self.clear()
            # What was not for a request does not count.
            self.decoded_tokens = self.decoded_batches = self.decoded_parts = 0

    def clear(self) -> None:
        """Drop all sequences."""
        self._rolled_back.clear()
        if self._memory:  # an encoder has none
            self._lib.llama_memory_clear(self._memory, True)

    def logits(self, index: int, size: int) -> list[float]:
        """The logits at a batch index, for tests and probes."""
        return self._lib.llama_get_logits_ith(self._handle, self.batch_index(index))[:size]

    def logits_row(self, index: int, size: int) -> memoryview:
        """The logits at a batch index, in llama.cpp's memory; valid until the next batch."""
        pointer = self._lib.llama_get_logits_ith(self.handle, self.batch_index(index))
        row = ctypes.c_float * size
        return memoryview(row.from_address(ctypes.addressof(pointer.contents)))

    def close(self) -> None:
        """Free the context; safe to call twice."""
        if self._handle:
            self._lib.llama_free(self._handle)
            self._handle = None


class Stopwatch:
    """The clock for everything that a context computes. All speeds are measured with it.

    Where llama.cpp computes on a GPU, `llama_decode` returns before the work is done. A time is
    only right after a wait. On a CPU there is nothing to wait for, and `finished` costs the same as
    `now`.
    """

    def __init__(self, context: NativeContext, clock: Callable[[], float] = perf_counter) -> None:
        self.returns_early = context.returns_early
        self._context = context
        self._clock = clock

    def now(self) -> float:
        """The time in seconds; work may still be queued."""
        return self._clock()

    def finished(self) -> float:
        """The time in seconds at which all queued work is computed; waits for it."""
        if self.returns_early:
            self._context.synchronize()
        return self._clock()


class RecentLine:
    """A line through recent measurements: seconds, by the size of what took them.

    All means move towards each measurement by the share `rate`, so that older ones count less.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.mean_size = self.mean_seconds = 0.0
        self.variance = self.covariance = 0.0

    def add(self, size: float, seconds: float) -> None:
        """Take a measurement."""
        if not self.mean_seconds:  # the first one
            self.mean_size, self.mean_seconds = size, seconds
            return
        rate = self._rate
        more, longer = size - self.mean_size, seconds - self.mean_seconds
        self.mean_size += rate * more
        self.mean_seconds += rate * longer
        self.variance = (1 - rate) * (self.variance + rate * more * more)
        self.covariance = (1 - rate) * (self.covariance + rate * more * longer)

    @property
    def slope(self) -> float:
        """The seconds for one more of a size; only where sizes differ enough."""
        return max(0.0, self.covariance / self.variance)


class Interrupt:
    """A flag that llama.cpp reads between two operations of a batch, if it computes on a CPU.

    llama.cpp calls a C function there. This is `strlen` of the flag: nothing or one character. A
    function of Python would need its lock (GIL) hundreds of times per batch. `set` may be called
    from any thread.
    """

    def __init__(self) -> None:
        lib = bindings()
        self._flag = ctypes.create_string_buffer(2)
        address = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0
        self._read: Any = lib.ggml_abort_callback(address)
        self._none: Any = lib.ggml_abort_callback(0)
        self._lib = lib

    def set(self) -> None:
        """End the batch that is computed now, or the next one."""
        self._flag[0] = b"!"

    def clear(self) -> None:
        """Let batches run to their end again."""
        self._flag[0] = b"\0"

    @property
    def is_set(self) -> bool:
        """Whether the batch that is computed now ends."""
        return bool(self._flag.value)

    def attach(self, context: Any) -> None:
        """Let a context read the flag."""
        place = ctypes.cast(self._flag, ctypes.c_void_p)
        self._lib.llama_set_abort_callback(context, self._read, place)

    def detach(self, context: Any) -> None:
        """End what `attach` began."""
        self._lib.llama_set_abort_callback(context, self._none, None)
