"""Computing ahead, as the settings want it."""

import os
from contextlib import ExitStack
from pathlib import Path

from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.locate import locate_model
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.backends.llamacpp.speculation.draft_model import DraftModel, check_same_vocabulary
from shepherd.config.sections import LlamaCppSection
from shepherd.errors import ModelLoadError


def open_speculator(
    settings: LlamaCppSection, model: NativeModel, context: NativeContext
) -> Speculator | None:
    """What drafts for this model, None if nothing does; raises ModelLoadError for a bad draft."""
    mode = settings.speculation
    if mode == "draft" and not settings.draft_model:
        raise ModelLoadError(
            'llamacpp.speculation = "draft" needs a model in llamacpp.draft_model; "lookup" '
            "needs none."
        )
    lookup = mode in ("auto", "lookup")
    if not settings.draft_model or mode not in ("auto", "draft"):
        return Speculator(model.vocab) if lookup else None
    with ExitStack() as resources:
        draft = _open_draft(settings, model, context)
        resources.callback(draft.close)
        speculator = Speculator(model.vocab, lookup=lookup, model=draft)
        resources.pop_all()  # the speculator frees it from here on
        return speculator


def _open_draft(
    settings: LlamaCppSection, target: NativeModel, context: NativeContext
) -> DraftModel:
    directory = Path(settings.models_dir).expanduser()
    path = locate_model(settings.draft_model, directory, cwd=directory)
    check_model_file(path)
    with ExitStack() as resources:
        model = NativeModel(path, model_params(settings, os.environ))
        resources.callback(model.close)
        check_same_vocabulary(model.vocab, target.vocab)
        params = context_params(settings, context.sequences, model.bytes)
        params.n_ctx = context.size
        draft_context = NativeContext(model, params)
        resources.callback(draft_context.close)
        draft = DraftModel(model, draft_context)
        resources.pop_all()  # the draft model frees them from here on
        return draft
