"""The tokens of answers: their text as updates, and whether an answer ends with one."""

from shepherd.backends.inprocess.updates import Text
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.guard import MAX_TAIL
from shepherd.backends.llamacpp.sampling.sampler import NO_TOKEN, SamplerChain
from shepherd.backends.llamacpp.scheduling.job import Job, Post
from shepherd.backends.llamacpp.speculation.earlier import EarlierAnswers
from shepherd.events import FinishReason


class Answers:
    """Adds sampled tokens to the answers of jobs. Owner thread only.

    The text of several tokens is decoded and posted together, by `post_text`. A job with stop
    strings or log probabilities gets an update for each token.
    """

    def __init__(
        self,
        vocab: Vocab,
        context_size: int,
        post: Post,
        *,
        jumps_ahead: bool = True,
        earlier: EarlierAnswers | None = None,
    ) -> None:
        """`jumps_ahead`: text that a grammar forces is decoded at once instead of sampled.

        `earlier` keeps complete answers for drafts.
        """
        self._jumps_ahead = jumps_ahead
        self._earlier = earlier
        self._vocab = vocab
        self.context_size = context_size
        self._post = post

    def accept(self, job: Job, token: int) -> FinishReason | None:
        """Add a sampled token; returns why the answer ends with it, or None if it goes on."""
        if token == NO_TOKEN or self._vocab.is_eog(token):
            job.end_token = token
            return FinishReason.STOP
        piece = self._vocab.piece(token)
        job.tokens.append(token)
        job.pieces.append(piece)
        if job.thought is not None:
            job.thought.feed(piece)
        if not job.joins_text:
            self.post_text(job)
            if job.stop.hit is not None:
                return FinishReason.STOP
        full = job.generated == job.max_tokens or len(job.tokens) >= self.context_size
        return FinishReason.LENGTH if full else None

    def jump_ahead(self, job: Job) -> FinishReason | None:
        """Add the tokens that need no choice; the next batch decodes them together.

        Returns as `accept` does. Raises BackendError if the grammar is too slow.
        """
        if job.sampler is None:
            return None
        for token in self._forced(job, job.sampler):
            job.decodes += 1
            reason = self.accept(job, token)
            if reason is not None:
                return reason
        return FinishReason.STOP if self._jumps_ahead and job.sampler.ended else None

    def _forced(self, job: Job, sampler: SamplerChain) -> list[int]:
        """The tokens that end reasoning at its limit, or those that the grammar forces."""
        if job.thought is not None and job.thought.ending:
            ending = self._vocab.tokenize(job.thought.ending, parse_special=True)
            job.thought.end()
            return sampler.write(ending)
        if not self._jumps_ahead:
            return []
        start = max(job.prompt_length, len(job.tokens) - MAX_TAIL)
        return sampler.force(job.tokens[start:])

    def post_text(self, job: Job) -> None:
        """Post the text of the tokens since the last call, unless it may wait."""
        if not job.pieces or (job.holds_text and job.has_text):
            return
        text = job.decode_text(b"".join(job.pieces))
        job.pieces.clear()
        logprob = None if job.sampler is None else job.sampler.logprob
        if text or logprob is not None:
            self._post(job, Text(text, logprob))

    def end(self, job: Job) -> None:
        """Post all text that is left of an answer that ends, and keep its tokens for drafts."""
        text = job.decode_text(b"".join(job.pieces), last=True)
        job.pieces.clear()
        if text:
            self._post(job, Text(text))
        if self._earlier is not None:
            self._earlier.add(job.tokens, job.prompt_length, job.end_token)
