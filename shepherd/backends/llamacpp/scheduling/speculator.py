"""Which requests get drafts in the next step, and how long they are."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from shepherd.backends.llamacpp.native.context import NativeContext, Span
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling import draft_model, drafts
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.mtp import MtpHead
from shepherd.catalog.model_files import locate_model, parts_of
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import ModelLoadError


class Speculator:
    """Drafts tokens where measurements show that it increases the speed. Owner thread only."""

    def __init__(
        self,
        context: NativeContext,
        *,
        lookup: bool = True,
        model: draft_model.Drafter | None = None,
        always: bool = False,
        exact: bool = False,
    ) -> None:
        """`context` is that of the answers, whose memory must be able to forget rejected tokens.

        `lookup` drafts from conversations; `always` skips the test whether a draft pays off.
        `exact` says that results do not depend on a batch's other tokens.
        """
        self._context = context
        self._vocab = context.vocab
        self._lookup = lookup
        self._model = model
        self._always = always
        self._exact = exact
        self._costs = drafts.BatchCosts(context.limits.token_share)
        self._rates = {kind: drafts.AcceptanceRate(prior) for kind, prior in drafts.PRIORS.items()}

    def choose_drafts(self, jobs: Sequence[Job], room: int) -> dict[Job, drafts.Draft]:
        """Drafts for jobs that decode one token each; all have at most `room` tokens."""
        budget = drafts.StepBudget(self._costs, len(jobs))
        chosen: dict[Job, drafts.Draft] = {}
        # Where a choice between texts begins, a draft would be dropped.
        able = [job for job in jobs if job.sampler is None or job.sampler.choice is None]
        for job in able:
            draft = self._from_conversation(job, self._max_tokens(job, room), budget)
            if draft is not None:
                chosen[job] = draft
                room -= len(draft.tokens)
        if self._model is not None and room > 0:
            without_draft = [job for job in able if job not in chosen]
            chosen |= self._from_model(self._model, without_draft, room, budget)
        return chosen

    def note_decoded(self, jobs: Sequence[Job], spans: Sequence[Span]) -> None:
        """Let a layer that drafts read what the model has just decoded."""
        if self._model is not None:
            self._model.note(jobs, spans)

    def note_batch(self, tokens: int, seconds: float, prompt: tuple[int, float]) -> None:
        """Learn from a batch without prompts; the tokens and seconds of a step with one."""
        self._costs.note(tokens, seconds, *prompt)

    def note_draft(self, job: Job, draft: drafts.Draft, accepted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right."""
        self._drafting(job).rates[draft.kind].note(accepted, len(draft.tokens))

    def warm_up(self) -> None:
        """Warm up the draft model, so that the first draft does not wait for it."""
        if self._model is not None:
            self._model.warm_up()

    def close(self) -> None:
        """Free the draft model."""
        if self._model is not None:
            self._model.close()

    def _drafting(self, job: Job) -> drafts.Drafting:
        """What is known of a job's drafts, made at its first one."""
        if job.drafting is None:
            job.drafting = drafts.Drafting(self._rates, lookup=self._lookup)
        return job.drafting

    def _from_conversation(
        self, job: Job, max_tokens: int, budget: drafts.StepBudget
    ) -> drafts.Draft | None:
        """A draft without a model, if it pays; one that does not pay is compared later."""
        drafting = self._drafting(job)
        draft = self._look_up(job, drafting)
        if draft is None:
            return None
        tokens = self._up_to_end(draft.tokens)
        rate = drafting.rates[draft.kind]
        length = self._length(budget, rate, min(max_tokens, len(tokens)))
        if length <= 0:
            # Otherwise a rate that fell too low would never be measured again.
            drafting.note_unused(draft, len(job.tokens))
            return None
        budget.add(rate, length)
        return drafts.Draft(tokens[:length], draft.kind)

    def _look_up(self, job: Job, drafting: drafts.Drafting) -> drafts.Draft | None:
        """A draft from a long match in the conversation, else from the better of two others."""
        draft = drafting.look_up(job.tokens, drafts.MAX_DRAFT)
        if not self._lookup or (draft is not None and draft.kind is drafts.DraftKind.LONG):
            return draft
        if job.escaped_prompt is None:
            job.escaped_prompt = drafts.EscapedPrompt(self._vocab, job.tokens[: job.prompt_length])
        escaped = job.escaped_prompt.look_up(job.tokens, drafts.MAX_DRAFT, drafts.DraftKind.LONG)
        if escaped is not None:
            return escaped
        earlier: drafts.Draft | None = None
        # llama.cpp rounds by the size of a batch, so that a draft from other requests could change
        # nearly equal choices, and so the text.
        if self._exact or not job.repeatable:
            earlier = job.account.earlier.look_up(job.tokens, drafts.MAX_DRAFT)
        # Before the answer has a backslash, this would only search for one again.
        if draft is None and job.escaped_prompt.is_open:
            draft = job.escaped_prompt.look_up(job.tokens, drafts.MAX_DRAFT, drafts.DraftKind.SHORT)
        candidates = [candidate for candidate in (earlier, draft) if candidate is not None]
        return max(candidates, key=lambda draft: drafting.rates[draft.kind].value, default=None)

    def _from_model(
        self,
        model: draft_model.Drafter,
        jobs: list[Job],
        room: int,
        budget: drafts.StepBudget,
    ) -> dict[Job, drafts.Draft]:
        """Drafts of the small model for these jobs, all decoded together."""
        requests: dict[Job, draft_model.DraftRequest] = {}
        for job in jobs:
            rate = self._drafting(job).rates[drafts.DraftKind.MODEL]
            each = model.seconds_per_token
            length = self._length(budget, rate, self._max_tokens(job, room), each)
            # Placeholders of images are no tokens, so that the draft model can't read them.
            if length > 0 and job.sequence is not None and not job.images:
                budget.add(rate, length, each)
                room -= length
                requests[job] = draft_model.DraftRequest(job, job.sequence.id, job.tokens, length)
            else:
                rate.forget()  # so that a model that was wrong for a while is asked again
        drafted = model.draft(list(requests.values())) if requests else []
        ended = (self._up_to_end(tokens) for tokens in drafted)
        kind = drafts.DraftKind.MODEL
        return {
            job: drafts.Draft(tokens, kind)
            for job, tokens in zip(requests, ended, strict=True)
            if tokens
        }

    def _length(
        self,
        budget: drafts.StepBudget,
        rate: drafts.AcceptanceRate,
        max_tokens: int,
        each: float = 0.0,
    ) -> int:
        """The tokens to draft, 0 for none; `each` is what drafting one takes, in seconds."""
        return max_tokens if self._always else budget.best_length(rate, max_tokens, each)

    def _max_tokens(self, job: Job, room: int) -> int:
        """How many drafted tokens the answer can still use, at most `room`."""
        # A state forgets so many tokens; other memory forgets any number.
        longest = self._context.rollback or drafts.MAX_DRAFT
        # One place is for the token that the model itself chooses behind the draft.
        remaining = self._context.size - len(job.tokens) - 1
        if job.max_tokens:  # 0 is no limit
            remaining = min(remaining, job.max_tokens - job.generated - 1)
        return min(longest, room, remaining)

    def _up_to_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first one that ends the answer or that the vocabulary lacks."""
        for place, token in enumerate(tokens):
            if not 0 <= token < self._vocab.size:  # an image, or the unknown end of an answer
                return tokens[:place]
            if self._vocab.is_eog(token):
                return tokens[: place + 1]
        return tokens


def open_speculator(
    settings: LlamaCppSection, model: NativeModel, context: NativeContext, *, mtp: bool = False
) -> Speculator | None:
    """The speculator that the settings ask for, or None; raises ModelLoadError.

    `mtp` says that the model has loaded a layer that drafts.
    """
    lookup = settings.speculation in ("auto", "lookup")
    if settings.speculation == "draft" and not settings.draft_model:
        raise ModelLoadError(
            'llamacpp.speculation = "draft" needs a model in llamacpp.draft_model; "lookup" '
            "needs none."
        )
    if not (lookup or _drafts_by_model(settings)):
        return None
    with ExitStack() as resources:
        draft: draft_model.Drafter | None = None
        if _drafts_by_model(settings):
            draft = _open_draft(settings, model, context)
        elif mtp:
            draft = MtpHead(model, context, _params_beside(settings, model, context))
        if draft is not None:
            resources.callback(draft.close)
        speculator = Speculator(context, lookup=lookup, model=draft, exact=settings.deterministic)
        resources.pop_all()  # the speculator frees it from here on
        return speculator


def draft_bytes(settings: LlamaCppSection) -> int:
    """The size of the draft model that the settings ask for; 0 without one."""
    if not _drafts_by_model(settings):
        return 0
    directory = settings.models_path
    try:
        path = locate_model(settings.draft_model, directory, cwd=directory)
        return sum(part.stat().st_size for part in parts_of(path))
    except (ModelLoadError, OSError):  # opening it reports it
        return 0


def _drafts_by_model(settings: LlamaCppSection) -> bool:
    """Whether the settings name a draft model and let it be used."""
    return bool(settings.draft_model) and settings.speculation in ("auto", "draft")


def _params_beside(settings: LlamaCppSection, model: NativeModel, context: NativeContext) -> Any:
    """The parameters of a context of `model` for as many tokens as `context` has."""
    same_size = settings.model_copy(update={"context_size": context.size})
    return context_params(same_size, context.sequences, model.traits)


def _open_draft(
    settings: LlamaCppSection, target: NativeModel, context: NativeContext
) -> draft_model.DraftModel:
    """The draft model of the settings, for the sequences of `target` in `context`."""
    directory = settings.models_path
    path = locate_model(settings.draft_model, directory, cwd=directory)
    check_model_file(path)
    with ExitStack() as resources:
        model = NativeModel(path, model_params(settings, os.environ))
        resources.callback(model.close)
        draft_model.check_same_vocabulary(model.vocab, target.vocab)
        draft_context = NativeContext(model, _params_beside(settings, model, context))
        resources.callback(draft_context.close)
        draft = draft_model.DraftModel.open(model, draft_context)
        resources.pop_all()  # the draft model frees them from here on
        return draft
