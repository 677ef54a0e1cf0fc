"""Tokens, templates and facts of a loaded model, for servers."""

from collections.abc import Collection, Sequence

from shepherd.backends.inprocess.prompt.prompt import PromptBuilder
from shepherd.backends.inprocess.prompt.raw import check_tokens, join_parts
from shepherd.backends.inprocess.sessions import SessionMemory
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.text_model import ModelFile, TextModel
from shepherd.sampling import Sampling
from shepherd.session import Session


class LlamaText(TextModel):
    """The text side of one loaded model; all work runs on its thread for text."""

    def __init__(
        self,
        engine: Engine,
        prompts: PromptBuilder,
        text: TextThread,
        sampling: Sampling,
        running: Collection[object],
    ) -> None:
        """`running` are the requests at work, `sampling` the defaults."""
        model = engine.model
        self._vocab = vocab = model.vocab
        self._prompts = prompts
        self._text = text
        self._running = running
        self._sessions = SessionMemory()
        self._sequences = engine.context.sequences
        self._file = ModelFile(
            name=model.name,
            template=prompts.source,
            context_size=engine.context.size,
            trained_context=model.trained_context,
            vocabulary=vocab.size,
            bytes=model.bytes,
            bos=vocab.text(vocab.bos),
            eos=vocab.text(vocab.eos),
            infills=vocab.infill is not None,
            sampling=sampling,
        )

    @property
    def file(self) -> ModelFile:
        return self._file

    @property
    def slots(self) -> Sequence[bool]:
        busy = len(self._running)
        return [index < busy for index in range(self._sequences)]

    async def tokenize(
        self, parts: Sequence[str | int], *, special: bool = True, begins: bool = False
    ) -> list[int]:
        return await self._text.run(join_parts, self._vocab, parts, special=special, begins=begins)

    async def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        return await self._text.run(self._pieces, tokens)

    async def render(self, session: Session, *, answer: bool = True) -> str:
        conversation = self._sessions.conversation(session)
        return await self._text.run(self._prompts.rendered, conversation, answer=answer)

    def _pieces(self, tokens: Sequence[int]) -> list[bytes]:
        check_tokens(self._vocab, tokens)
        return [self._vocab.piece(token) for token in tokens]
