"""Compaction on request: the model writes a summary in the place of old turns."""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, structs

from shepherd import events
from shepherd.backends.base import Backend, ModelInfo
from shepherd.errors import ContextFullError, InvalidRequestError, MemoryStoreError
from shepherd.memory.memory import Memory
from shepherd.memory.store import MAX_KEY, MAX_VALUE, Place, storable
from shepherd.messages import Message, Role
from shepherd.session import Session, TokenLedger
from shepherd.tools.text import pluralize
from shepherd.turn.fitting import message_counts, message_groups

SUMMARY_TOKENS = 1024
SUMMARY_SHARE = 4
"""A summary has at most this many tokens, and at most a quarter of the context."""

MIN_PIECE = 200
"""Characters; a context that can't take a piece of this length is too small to summarise."""

SAMPLE_CHARACTERS = 4000
DIGEST_CHARACTERS = 120
"""The maximum length of each line of a digest."""

MAX_FACTS = 5

INSTRUCTION = (
    "Summarise the conversation so far. Your summary replaces its messages, so keep what is needed "
    "to go on: the goals, the decisions and their reasons, the names of files and what changed in "
    "them, commands and their results, open points, and the wishes of the user.{keep} Write plain "
    "text of at most {words} words. Call no tool. If there are lasting facts about the user or the "
    "project that other conversations need, end with one line for each: FACT: name = value"
)
KEEP = " Above all, keep this: {text}."
SUMMARISER = "You summarise conversations between a user and an agent with tools."
PIECE = "{before}Next part of the conversation:\n\n{text}\n\n{instruction}"
BEFORE = "Summary of the parts before:\n\n{text}\n\n"
STOPPED = "The summary was stopped; the conversation is as it was."
SUMMARY = "[Summary of {count}, in their place:]\n{text}"

_FACT = re.compile(
    r"^[ \t]*(?:[-*][ \t]*)?FACT:[ \t]*(?P<name>[^=:\n]{1,80}?)[ \t]*[=:][ \t]*(?P<value>\S.*)$",
    re.MULTILINE,
)
"""`- FACT: name = value`, as a line of its own."""


class SuggestedFact(Struct, frozen=True):
    """A fact that the model would keep; nothing is stored unless the user agrees."""

    name: str
    value: str


class Compaction(Struct, frozen=True):
    """The result: how many messages and tokens became a summary of how many tokens.

    The end of the summary is missing if it was `cut` at its limit.
    """

    messages: int
    tokens: int
    summary: str
    summary_tokens: int
    facts: tuple[SuggestedFact, ...] = ()
    cut: bool = False

    @property
    def text(self) -> str:
        """The result as sentences for the user."""
        text = (
            f"{pluralize(self.messages, 'message')} of {self.tokens:,} tokens became a summary of "
            f"{self.summary_tokens:,}."
        )
        return f"{text} It was cut at its limit: its end is missing." if self.cut else text


def old_turns(messages: list[Message]) -> range:
    """The messages that a summary replaces; empty if there are only the last turns.

    The last two turns stay, or the last one of two. Of a single turn, the last two rounds stay.
    """
    prompts = [i for i, m in enumerate(messages) if m.role is Role.USER and not m.is_hint]
    groups = message_groups(messages)
    earlier_turns = [group for group in groups if prompts and group.stop <= prompts[-1]]
    # the groups of a single turn are its rounds; of one earlier turn, nothing else is old
    old = (earlier_turns or groups)[:-1] or earlier_turns
    return range(old[0].start, old[-1].stop) if old else range(0)


async def compact(
    session: Session,
    backend: Backend,
    keep: str = "",
    callback: events.EventCallback = events.ignore_events,
) -> Compaction:
    """Let the model write a summary in the place of the old turns, which the archive stores.

    A model that was trained on a few tasks, such as the built-in one, can't summarise: then the
    summary is a digest of the messages. `keep` says what matters most. `callback` receives the
    progress. Until the summary is complete, nothing changes: not by a cancellation, and not by an
    error. Raises InvalidRequestError if there is nothing to summarise, no summary, or if the old
    turns have changed meanwhile, and the errors of the backend.
    """
    span = old_turns(session.messages)
    if not span:
        raise InvalidRequestError("There is nothing to summarise: only the last turns are left.")
    old = session.messages[span.start : span.stop]
    counts = await message_counts(session, backend)
    summariser = _Summariser(session, backend, keep, callback)
    if backend.info.trained_tools is not None:
        text = digest(old)
    else:
        text = await summariser.summary(span)
    lines = list(_FACT.finditer(text))[:MAX_FACTS]
    facts = tuple(SuggestedFact(line["name"], line["value"].strip()) for line in lines)
    text = _FACT.sub("", text).strip()
    if not text:
        raise InvalidRequestError("The model wrote no summary; the conversation is as it was.")
    content = SUMMARY.format(count=pluralize(len(span), "message"), text=text)
    message = Message.hint(content)
    tokens = sum(counts[i] for i in span)
    size = await backend.count_message_tokens(session, message)
    if size >= tokens:
        raise InvalidRequestError(
            f"The summary is not shorter than the messages ({size:,} tokens against {tokens:,}); "
            "the conversation is as it was."
        )
    if session.messages[span.start : span.stop] != old:  # another one was quicker
        raise InvalidRequestError("The conversation has changed meanwhile; it is as it was then.")
    session.compact([span], message)
    return Compaction(len(span), tokens, text, size, facts, summariser.cut)


def instruction(model: ModelInfo, keep: str = "") -> str:
    """What a model is asked for, with the user's wish what to keep."""
    keep = KEEP.format(text=keep.strip().rstrip(".")) if keep.strip() else ""
    words = summary_tokens(model) // 2  # counts a word as two tokens
    return INSTRUCTION.format(keep=keep, words=words)


def summary_tokens(model: ModelInfo) -> int:
    """The maximum tokens of a summary."""
    size = model.context_size
    return min(SUMMARY_TOKENS, size // SUMMARY_SHARE) if size else SUMMARY_TOKENS


class _Summariser(Struct):
    """Asks for summaries in requests of their own; the session is only read.

    The last answer was `cut` if it reached its limit of tokens.
    """

    session: Session
    backend: Backend
    keep: str
    callback: events.EventCallback
    cut: bool = False

    async def summary(self, span: range) -> str:
        """The summary of the messages; in one request if they fit, otherwise in pieces."""
        session, asking = self.session, Message.user(instruction(self.backend.info, self.keep))
        whole = structs.replace(
            session,
            messages=[*session.messages[: span.stop], asking],  # what comes before is in the cache
            ledger=TokenLedger(),  # what runs parallel to the messages begins anew, too
            times=[],
            numbers=[],
            branches=[],
            journal=None,
            archive=None,
            additions=None,
            thinking=False,
        )
        text = await self._answer_if_it_fits(whole)
        if text:  # a model that writes nothing may manage with pieces
            return text
        texts = map(as_text, session.messages[span.start : span.stop])
        return await self._in_pieces("\n\n".join(texts))

    async def _in_pieces(self, text: str) -> str:
        """The summary of a long text: each request has the summary so far and the next piece."""
        summary, read = "", 0
        length = await self._piece_length(text)
        while read < len(text):
            request = self._request(text[read : read + length], summary)
            answer = await self._answer_if_it_fits(request)
            if answer is not None:
                # after an empty answer, the summary so far must not be lost
                summary = answer or summary
                read += length
                percent = f"summarising: {min(100, 100 * read // len(text))} %"
                if not self.callback(events.Notice(percent, events.Topic.PROGRESS)):
                    raise InvalidRequestError(STOPPED)
            elif length > MIN_PIECE:
                length = max(MIN_PIECE, length // 2)
            else:
                raise ContextFullError("The context is too small to summarise the conversation.")
        return summary

    async def _piece_length(self, text: str) -> int:
        """The characters of text that probably fit into one request."""
        size = self.backend.info.context_size
        if not size:  # unknown: then all of it is one piece
            return max(1, len(text))
        sample = Message.user(text[:SAMPLE_CHARACTERS])
        tokens = max(1, await self.backend.count_message_tokens(self.session, sample))
        # a request holds the summary before, the new one, and the instruction
        instruction_tokens = SUMMARY_TOKENS // SUMMARY_SHARE
        room = max(1, size - 2 * summary_tokens(self.backend.info) - instruction_tokens)
        return max(MIN_PIECE, room * len(sample.content) // tokens)

    async def _answer_if_it_fits(self, request: Session) -> str | None:
        """The text of the answer, None if the context has no room for request and summary."""
        size = self.backend.info.context_size
        try:
            if size:  # else it is unknown, and only the backend can tell
                tokens = await self.backend.count_session_tokens(request)
                if tokens + summary_tokens(self.backend.info) > size:
                    return None
            return await self._answer(request)
        except ContextFullError:  # a count may be an estimate
            return None

    async def _answer(self, request: Session) -> str:
        """The text of the answer, "" if there is none. Raises InvalidRequestError if cancelled."""
        stopped = False

        def receive(event: events.Event) -> bool:
            nonlocal stopped
            # the text of a summary is no answer, so nobody sees it as it is written
            is_progress = isinstance(event, events.Notice | events.PrefillProgress | events.Stats)
            stopped = stopped or (is_progress and not self.callback(event))
            return not stopped

        async with await self.backend.prefill_session(request, receive) as prefilled:
            generation = await self.backend.generate_from_prefilled(
                prefilled, receive, summary_tokens(self.backend.info)
            )
        if stopped:
            raise InvalidRequestError(STOPPED)
        self.cut = generation.finish_reason is events.FinishReason.LENGTH
        return generation.message.content.strip()

    def _request(self, text: str, before: str) -> Session:
        """A session that asks for the summary of a piece; `before` is the summary so far."""
        earlier = BEFORE.format(text=before) if before else ""
        prompt = PIECE.format(
            before=earlier, text=text, instruction=instruction(self.backend.info, self.keep)
        )
        messages = [Message.user(prompt)]
        return Session(SUMMARISER, messages, sampling=self.session.sampling)


def digest(messages: Sequence[Message]) -> str:
    """The beginnings of what the user and the model said, and the calls that were made."""
    lines: list[str] = []
    for message in messages:
        text = " ".join(message.plain_text.split())
        if text and message.role in (Role.USER, Role.ASSISTANT):
            role = "Note" if message.is_hint else message.role.value.capitalize()
            lines.append(f"{role}: {_cut(text)}")
        lines += [f"Call: {call.name} {_cut(call.arguments_json)}" for call in message.tool_calls]
    return "\n".join(lines)


def _cut(text: str) -> str:
    """The text, or its beginning with `…` in the length of a digest's line."""
    return text if len(text) <= DIGEST_CHARACTERS else f"{text[: DIGEST_CHARACTERS - 1]}…"


def as_text(message: Message) -> str:
    """A message as lines of a summary's source."""
    if message.role is Role.TOOL:
        return f"RESULT of {message.name}: {message.plain_text}"
    calls = [f"CALL {call.name} {call.arguments_json}" for call in message.tool_calls]
    role = "NOTE" if message.is_hint else message.role.value.upper()
    text = [f"{role}: {message.plain_text}"] if message.plain_text else []
    return "\n".join([*text, *calls])


async def remember(memory: Memory | None, cwd: Path, fact: SuggestedFact) -> None:
    """Store a fact of the project; raises MemoryStoreError."""
    if memory is None:
        raise MemoryStoreError("There is no memory: memory.enabled or save_sessions is off.")
    name, value = storable(fact.name).strip()[:MAX_KEY], storable(fact.value)[:MAX_VALUE]
    await memory.set_fact(Place.of(cwd).project, name, value)


def parse_fact(text: str) -> SuggestedFact:
    """The fact in `NAME = VALUE`; raises InvalidRequestError."""
    name, sign, value = (part.strip() for part in text.partition("="))
    if not (name and sign and value):
        raise InvalidRequestError("A fact is NAME = VALUE.")
    return SuggestedFact(name, value)
