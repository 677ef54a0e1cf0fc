"""Which requests get drafts in the next step, and how long they are."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.gguf import check_model_file
from shepherd.backends.llamacpp.native.locate import locate_model
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.speculation.draft_model import (
    DraftModel,
    Wanted,
    check_same_vocabulary,
)
from shepherd.backends.llamacpp.speculation.drafts import MOST, UNKNOWN, Draft, Drafting, DraftKind
from shepherd.backends.llamacpp.speculation.payoff import BatchCosts, Chance, StepBudget
from shepherd.config.sections import LlamaCppSection
from shepherd.errors import ModelLoadError


class Speculator:
    """Drafts where that gives more tokens a second, as measured. Owner thread only."""

    def __init__(
        self,
        vocab: Vocab,
        *,
        lookup: bool = True,
        model: DraftModel | None = None,
        always: bool = False,
    ) -> None:
        """`lookup` drafts from conversations; `always` does so whether it pays or not."""
        self._vocab = vocab
        self._lookup = lookup
        self._model = model
        self._always = always
        self._costs = BatchCosts()
        self._chances = {kind: Chance(unknown) for kind, unknown in UNKNOWN.items()}

    def drafts(self, jobs: Sequence[Job], room: int, context_size: int) -> dict[Job, Draft]:
        """Drafts for jobs that would decode one token each, of at most `room` tokens in all."""
        budget = StepBudget(self._costs, len(jobs))
        chosen: dict[Job, Draft] = {}
        for job in jobs:
            most = min(MOST, room, _left(job, context_size))
            draft = self._from_conversation(job, most, budget)
            if draft is not None:
                chosen[job] = draft
                room -= len(draft.tokens)
        if self._model is not None and room > 0:
            rest = [job for job in jobs if job not in chosen]
            chosen |= self._from_model(self._model, rest, room, context_size, budget)
        return chosen

    def note_batch(self, tokens: int, seconds: float, prompt_speed: float) -> None:
        """Learn from a batch without prompts, which are read at so many tokens a second."""
        self._costs.note(tokens, seconds, prompt_speed)

    def note_draft(self, job: Job, draft: Draft, accepted: int) -> None:
        """Learn from a draft of which so many tokens were right, before one was not."""
        self._drafting(job).chances[draft.kind].note(accepted, len(draft.tokens))

    def warm_up(self) -> None:
        """Do what the first draft would wait for."""
        if self._model is not None:
            self._model.warm_up()

    def close(self) -> None:
        """Free the draft model."""
        if self._model is not None:
            self._model.close()

    def _drafting(self, job: Job) -> Drafting:
        if job.drafting is None:
            job.drafting = Drafting(self._chances, lookup=self._lookup)
        return job.drafting

    def _from_conversation(self, job: Job, most: int, budget: StepBudget) -> Draft | None:
        drafting = self._drafting(job)
        found = drafting.look_up(job.tokens, MOST)
        if found is None:
            return None
        tokens = self._up_to_end(found.tokens)
        chance = drafting.chances[found.kind]
        length = self._length(budget, chance, min(most, len(tokens)))
        if length <= 0:
            drafting.imagine(found, len(job.tokens))
            return None
        budget.add(chance, length)
        return Draft(tokens[:length], found.kind)

    def _from_model(
        self,
        model: DraftModel,
        jobs: list[Job],
        room: int,
        context_size: int,
        budget: StepBudget,
    ) -> dict[Job, Draft]:
        wanted: dict[Job, Wanted] = {}
        for job in jobs:
            chance = self._drafting(job).chances[DraftKind.MODEL]
            most = min(MOST, room, _left(job, context_size))
            length = self._length(budget, chance, most, model.seconds_a_token)
            if length > 0 and job.sequence is not None:
                budget.add(chance, length, model.seconds_a_token)
                room -= length
                wanted[job] = Wanted(job, job.sequence.id, job.tokens, length)
            else:
                chance.forget()
        drafted = model.draft(list(wanted.values())) if wanted else []
        ended = (self._up_to_end(tokens) for tokens in drafted)
        kind = DraftKind.MODEL
        return {
            job: Draft(tokens, kind) for job, tokens in zip(wanted, ended, strict=True) if tokens
        }

    def _length(self, budget: StepBudget, chance: Chance, most: int, each: float = 0.0) -> int:
        return most if self._always else budget.best_length(chance, most, each)

    def _up_to_end(self, tokens: list[int]) -> list[int]:
        """Without what is behind a token that would end the answer, or that there is none of."""
        for place, token in enumerate(tokens):
            if token >= self._vocab.size:
                return tokens[:place]
            if self._vocab.is_eog(token):
                return tokens[: place + 1]
        return tokens


def _left(job: Job, context_size: int) -> int:
    """How many drafted tokens the answer could still use."""
    left = context_size - len(job.tokens) - 1
    return min(left, job.max_tokens - job.generated - 1) if job.max_tokens else left


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
