"""Computing ahead, as the settings want it."""

import os
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
    draft = None
    if settings.draft_model and mode in ("auto", "draft"):
        draft = _open_draft(settings, model, context)
    lookup = mode in ("auto", "lookup")
    return Speculator(model.vocab, lookup=lookup, model=draft) if lookup or draft else None


def _open_draft(
    settings: LlamaCppSection, target: NativeModel, context: NativeContext
) -> DraftModel:
    directory = Path(settings.models_dir).expanduser()
    path = locate_model(settings.draft_model, directory, cwd=directory)
    check_model_file(path)
    model = NativeModel(path, model_params(settings, os.environ))
    try:
        check_same_vocabulary(model.vocab, target.vocab)
        params = context_params(settings, context.sequences, model.bytes)
        params.n_ctx = context.size
        return DraftModel(model, NativeContext(model, params))
    except ModelLoadError:
        model.close()
        raise
