"""All native objects of one loaded model, created and freed together."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from shepherd.backends.base import Concurrency
from shepherd.backends.llamacpp.cache import disk_cache, sequence
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native import batch, devices, fitting, gguf
from shepherd.backends.llamacpp.native.context import ONE_SEQUENCE, NativeContext
from shepherd.backends.llamacpp.native.model import NativeAdapters, NativeModel, configured_adapters
from shepherd.backends.llamacpp.native.params import (
    ROWS,
    TINY_MODEL,
    context_params,
    default_threads,
    gpu_layers,
    gpu_notice,
    model_params,
    set_deterministic_context,
)
from shepherd.backends.llamacpp.rpc.workers import Workers, open_workers
from shepherd.backends.llamacpp.scheduling.job import Post
from shepherd.backends.llamacpp.scheduling.mtp import has_head
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.scheduling.speculator import (
    Speculator,
    draft_bytes,
    open_speculator,
)
from shepherd.backends.llamacpp.vision.encoder import ImageEncoder, VisionSetup
from shepherd.backends.llamacpp.vision.projector import ProjectorChoice, choose_projector
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError
from shepherd.tasks import in_daemon_thread


class Engine(Struct, eq=False):
    """A model, its context and its scheduler; created and used on one thread."""

    model: NativeModel
    context: NativeContext
    scheduler: Scheduler
    settings: LlamaCppSection
    speculator: Speculator | None = None
    images: ImageEncoder | None = None
    reasons: tuple[str | None, ...] = ()
    """Why not all that the settings ask for is used, as notices."""

    @classmethod
    def load(
        cls,
        path: Path,
        settings: LlamaCppSection,
        parallel: Concurrency,
        post: Post,
        cache: Path | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> "Engine":
        """Load a model file; conversations are saved in the folder `cache`, unless it is None.

        `wake` is called from other threads when an image is encoded or an RPC worker is lost.
        Raises ModelLoadError, or ConfigError for a bad variable.
        """
        header = gguf.check_model_file(path)
        if header.values.get("general.architecture") in ONE_SEQUENCE:
            parallel = Concurrency()
        settings = settings.model_copy(update={"parallel": parallel.initial})
        _import_what_answers_need(path)
        choice = choose_projector(path, header, settings)
        workers = open_workers(settings)
        fit = fitting.fit_model(
            header,
            settings,
            beside=draft_bytes(settings) + choice.bytes,
            devices=None if workers is None else workers.devices,
        )

        if fit.is_hopeless:
            raise ModelLoadError(f"{path.name} can't be loaded. {fit.shortage}")
        by_itself = settings.speculation == "auto" and not settings.draft_model
        mtp = by_itself and not settings.deterministic and workers is None and has_head(header)

        def load_as(fit: fitting.Fit) -> "Engine":
            rollback, applied = fit.demand.rollback, fit.applied(settings)
            return cls._load(
                _Order(path, applied, parallel, post, cache, wake, workers, choice, rollback, mtp)
            )

        lack_of_gpus = gpu_notice(settings)
        engine, engine_fit = fitting.load_fitted(fit, load_as)
        misplaced = engine_fit.misplaced(engine.model.places)
        engine.reasons = (lack_of_gpus, engine_fit.notice, misplaced, choice.notice)
        return engine

    @classmethod
    def _load(cls, order: "_Order") -> "Engine":
        """As `load`, exactly with these settings."""
        path, settings, workers = order.path, order.settings, order.workers
        parallel = order.parallel
        # An error on the way frees what was made before it.
        adapters = configured_adapters(settings)
        with ExitStack() as resources:
            params = model_params(settings, os.environ, workers)
            params.load_mtp = order.mtp
            model = NativeModel(path, params, workers)
            resources.callback(model.close)
            if not model.can_generate:
                raise ModelLoadError(f"{path} is not a model that can generate text.")
            loaded = NativeAdapters(model, adapters)
            sequences = parallel.initial
            # Sequences that share their cells cost no memory until they are used.
            if not model.keeps_state and not settings.deterministic:
                sequences = max(parallel.initial, parallel.maximum)
            params = context_params(settings, sequences, model.traits)
            params.n_rs_seq = order.rollback
            if settings.deterministic:
                set_deterministic_context(params, model.trained_context)
            context = NativeContext(model, params)
            resources.callback(context.close)
            loaded.apply(context.handle)
            disk = disk_cache.open_disk_cache(order.cache, settings, path, params)
            if settings.deterministic:  # before anything reads the limits of the context
                make_deterministic(model, context)
            pool = _sequence_pool(model, context, settings, disk)
            pool.set_initial_count(parallel.initial)
            speculator = (
                open_speculator(settings, model, context, mtp=order.mtp) if pool.can_draft else None
            )
            if speculator is not None:
                resources.callback(speculator.close)
            images = _image_encoder(order, model, context)
            if images is not None:
                resources.callback(images.close)
            scheduler = Scheduler(
                context, pool, order.post, speculator, images, jumps_ahead=settings.jump_ahead
            )
            engine = cls(model, context, scheduler, settings, speculator, images)
            if workers is not None:
                workers.check()  # weights on a worker that was lost meanwhile are zeros
                workers.watch(order.wake)
            resources.pop_all()  # the engine frees them from here on
            return engine

    def notices(self) -> list[str]:
        """Notices for the user about how the model was loaded."""
        trained, size = self.model.trained_context, self.context.size
        notices = [notice for notice in self.reasons if notice]
        if 0 < trained < size:
            notices.append(
                f"The context of {size} tokens is larger than the {trained} tokens that the model "
                "was trained for; answers may get worse beyond them."
            )
        return notices

    def warm_up(self) -> Iterator[None]:
        """Warm up in small steps, so that the first request waits less; only before any request."""
        self.context.warm_up()
        yield
        if self.speculator is not None:
            self.speculator.warm_up()
        yield
        # For grammars.
        _ = self.model.vocab.sorted_pieces

    def close(self) -> None:
        """Free the projector, the draft model, the context, then the model."""
        if self.images is not None:
            self.images.close()
        if self.speculator is not None:
            self.speculator.close()
        if self.model.workers is not None:
            self.model.workers.release()
        self.context.close()
        self.model.close()


class _Order(Struct, frozen=True):
    """A model to load, its settings, and the RPC workers that share it.

    States of sequences can forget `rollback` tokens, if llama.cpp can do that for this model. With
    `mtp` its layer that drafts is loaded, too.
    """

    path: Path
    settings: LlamaCppSection
    parallel: Concurrency
    post: Post
    cache: Path | None
    wake: Callable[[], None]
    workers: Workers | None
    choice: ProjectorChoice
    rollback: int
    mtp: bool


def _import_what_answers_need(path: Path) -> None:
    """Import what grammars and large vocabularies need, while llama.cpp loads the model."""
    names = ["llguidance"]
    if path.stat().st_size >= TINY_MODEL:  # its vocabulary is large enough for samplers with numpy
        names.append("numpy")
    for name in names:
        in_daemon_thread(partial(import_module, name))


def _image_encoder(
    order: _Order, model: NativeModel, context: NativeContext
) -> ImageEncoder | None:
    """The encoder of the model's images; None if it does not see."""
    projector, settings = order.choice.projector, order.settings
    if projector is None:
        return None
    setup = VisionSetup(
        projector.path,
        projector.digest,
        threads=settings.threads or default_threads(projector.bytes),
        use_gpu=gpu_layers(settings, os.environ) != 0,
        ubatch=context.ubatch_size,
    )
    return ImageEncoder(setup, model, order.wake)


def _sequence_pool(
    model: NativeModel,
    context: NativeContext,
    settings: LlamaCppSection,
    disk: disk_cache.DiskCache | None,
) -> SequencePool:
    """The pool of a context's sequences, with its cache tiers.

    A state with a sliding window is restored into other cells, where sums round differently: no
    deterministic result can use one.
    """
    restores = not (settings.deterministic and model.window)
    host = sequence.HostCache(disk_cache.cache_capacity(settings) if restores else 0)
    return SequencePool(
        context,
        model.window,
        model.vocab.controls,
        host,
        disk=disk if restores else None,
        shifts=settings.reuse_after_eviction and not settings.deterministic,
    )


# Results that do not depend on the other tokens of a batch, for `llamacpp.deterministic`.
#
# llama.cpp chooses its kernels by the number of tokens, and kernels round differently. What differs
# on a CPU, and what is done about it:
#
# - One token takes other kernels than several. Every part of a batch is padded to `rows` tokens.
# - Flash attention splits long contexts by the number of tokens and threads. It is off.
# - Attention sums over cells in the order of memory. Each sequence has its own cells.
# - Repacked and tiled weights are computed in groups of tokens. Both are off.

_GROUPS = 4
"""A batch of so many times `rows` tokens is compared with its parts."""

_MIN_TOKENS_ON_OTHER_DEVICES = 64
"""BLAS libraries and GPUs have kernels for larger batches too."""


def make_deterministic(model: NativeModel, context: NativeContext) -> None:
    """Pad batches so that results do not depend on them; raises ModelLoadError if they still do.

    The memory must be empty, and the parameters those of `set_deterministic_context`.
    """
    if model.keeps_state:
        raise ModelLoadError(
            "llamacpp.deterministic is not possible with a recurrent model, because its memory "
            "can't forget padding. Turn the setting off."
        )
    vocabulary = model.vocab.size

    def agree(rows: int, count: int) -> bool:
        """Whether a prompt of `count` tokens has the same logits at once and in three batches."""
        context.pad_to(rows)
        tokens = [place % vocabulary for place in range(1, count + 1)]
        parts = [tokens[:rows], tokens[rows:-rows], tokens[-rows:]]
        at_once = _last_logits(context, [tokens], vocabulary)
        return at_once == _last_logits(context, parts, vocabulary)

    choose_rows(agree)


def choose_rows(agree: Callable[[int, int], bool]) -> int:
    """The smallest number of rows with which all batches agree; raises ModelLoadError.

    `agree(rows, tokens)` computes so many tokens at once and in parts of at least `rows`.
    """
    is_other_device = devices.has_gpu() or sys.platform == "darwin"
    for rows in ROWS:
        tokens = _GROUPS * rows
        if is_other_device:
            tokens = max(tokens, _MIN_TOKENS_ON_OTHER_DEVICES)
        if agree(rows, tokens):
            return rows
    raise ModelLoadError(
        "llamacpp.deterministic is not possible with this model on this device: its results "
        "depend on the number of tokens that are computed at once. Turn the setting off."
    )


def _last_logits(context: NativeContext, parts: Sequence[Sequence[int]], vocabulary: int) -> bytes:
    """The last logits of a sequence that is decoded in parts, beside another one."""
    start = 0
    for part in parts:
        spans = [batch.Span(0, start, part, wants_logits=True)]
        if context.sequences > 1:  # other tokens, which must not change the result
            spans.append(batch.Span(1, start, part[::-1], wants_logits=start > 0))
        context.decode(spans)
        start += len(part)
    logits = bytes(context.logits_row(len(parts[-1]) - 1, vocabulary))
    context.clear()
    context.decoded_tokens = context.decoded_batches = context.decoded_parts = 0
    return logits
