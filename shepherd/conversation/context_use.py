"""The tokens of a session's next prompt, part by part."""

from collections.abc import Sequence

from msgspec import Struct, structs

from shepherd.backends.base import Backend, CacheTier
from shepherd.errors import ContextFullError, ShepherdError
from shepherd.knowledge import instructions
from shepherd.messages import JsonObject, Message, Role
from shepherd.session import Session
from shepherd.tools.text import one_line
from shepherd.turn.fitting import message_counts

SYSTEM, TOOLS, TEMPLATE = "system message", "tools", "template"
ROLES = {Role.USER: "your messages", Role.ASSISTANT: "answers", Role.TOOL: "tool results"}
MAX_NAME = 60


class ContextPart(Struct, frozen=True):
    """A part of the prompt."""

    name: str
    tokens: int


class ContextUse(Struct, frozen=True):
    """The parts, their sum `used`, the tokens that the model has `read`, and its `size`.

    `read` also counts while a prompt is being read. `size` is 0 if it is unknown. `error`: see
    `ModelInfo.count_error`; None means that all numbers are exact.
    """

    parts: tuple[ContextPart, ...]
    used: int
    read: int
    size: int
    error: float | None = None

    @property
    def free(self) -> int:
        """The tokens that are left."""
        return max(0, self.size - self.used)

    def to_json(self) -> JsonObject:
        """The numbers for programs."""
        parts = [{"name": part.name, "tokens": part.tokens} for part in self.parts]
        numbers = {"used": self.used, "read": self.read, "size": self.size}
        return {**numbers, "exact": self.error is None, "parts": parts}


async def measure_context(session: Session, backend: Backend) -> ContextUse:
    """Count the parts with the model's own template: each by the tokens that it adds."""
    # the session as it is now; a turn may go on meanwhile
    ledger = structs.replace(session.ledger, counts=[*session.ledger.counts])
    session = structs.replace(session, messages=[*session.messages], ledger=ledger)
    prompts = _Prompts(session, backend)
    before_messages = await prompts.count(session.system_message, len(session.tools))
    used = await _count(session, backend) if session.messages else before_messages
    without_tools = await prompts.count(session.system_message, 0)
    parts = await prompts.system_parts(without_tools)
    parts.append(ContextPart(TOOLS, max(0, before_messages - without_tools)))
    parts += await _message_parts(session, backend)
    # the template's own words if the parts are less than the whole, left out text if they are more
    rest = used - sum(part.tokens for part in parts)
    parts = [*_reduced(parts, -rest), ContextPart(TEMPLATE, max(0, rest))]
    read = session.ledger.context_used
    return ContextUse(tuple(parts), used, read, backend.info.context_size, backend.info.count_error)


async def measure_tools(session: Session, backend: Backend) -> list[ContextPart]:
    """The tokens of each tool, in the order of the prompt; the first includes the list's head."""
    prompts = _Prompts(session, backend)
    counts = [await prompts.count(session.system_message, n) for n in range(len(session.tools) + 1)]
    return [
        ContextPart(tool.name, max(0, after - before))
        for tool, before, after in zip(session.tools, counts, counts[1:], strict=False)
    ]


def context_rows(use: ContextUse) -> list[tuple[str, str]]:
    """Name and tokens of each part."""
    about = "" if use.error is None else "about "
    rows = part_rows(use.parts, use.size)
    rows.append(("used", about + _tokens(use.used, use.size)))
    if use.size:
        rows.append(("free", f"{about}{_tokens(use.free, use.size)} of {use.size:,}"))
    if use.read and use.read != use.used:
        rows.append(("read so far", _tokens(use.read, use.size)))
    if use.error is not None:
        # an error of 1 means that it is unknown how far the numbers are off
        margin = f", ±{max(1, round(100 * use.error))}%" if use.error < 1 else ""
        rows.append(("counts", f"estimated{margin}"))
    return rows


def part_rows(parts: Sequence[ContextPart], size: int) -> list[tuple[str, str]]:
    """Name and tokens of each of `parts`, in a context of `size` tokens."""
    return [(one_line(part.name)[:MAX_NAME], _tokens(part.tokens, size)) for part in parts]


def cache_rows(tiers: Sequence[CacheTier]) -> list[tuple[str, str]]:
    """The contents and savings of the prefix cache, tier by tier; none for other backends."""
    rows: list[tuple[str, str]] = []
    for tier in tiers:
        held = f"{tier.entries:,} kept, {tier.bytes / 1e6:,.1f} MB"
        saved = f"{tier.hits:,} hits saved {tier.tokens:,} tokens"
        evictions = f"{tier.evictions:,} evicted"
        rows.append((f"cache, {tier.name}", f"{held}; {saved}; {evictions}"))
    return rows


def _tokens(tokens: int, size: int) -> str:
    """`  1,234  12%`; without the share of a context whose size is unknown."""
    share = f"  {100 * tokens / size:.0f}%" if size else ""
    return f"{tokens:>7,}{share}"


def _reduced(parts: Sequence[ContextPart], surplus: int) -> list[ContextPart]:
    """The parts with fewer tokens: templates leave out text, such as the reasoning of answers."""
    tokens = {part.name: part.tokens for part in parts}
    # answers first, then the latest part: a surplus of 0 or less changes none
    for name in (ROLES[Role.ASSISTANT], *reversed(tokens)):
        taken = min(max(0, surplus), tokens[name])
        tokens[name] -= taken
        surplus -= taken
    return [ContextPart(name, count) for name, count in tokens.items()]


async def _message_parts(session: Session, backend: Backend) -> list[ContextPart]:
    """The tokens of the messages by role; a message of the system counts as the user's."""
    tokens = dict.fromkeys(ROLES, 0)
    counts = await message_counts(session, backend)
    for message, count in zip(session.messages, counts, strict=True):
        tokens[message.role if message.role in ROLES else Role.USER] += count
    return [ContextPart(ROLES[role], count) for role, count in tokens.items()]


async def _count(session: Session, backend: Backend) -> int:
    """The tokens of the prompt, also of one that does not fit into the context."""
    try:
        return await backend.count_session_tokens(session)
    except ContextFullError as full:
        if full.prompt_tokens is None:
            raise
        return full.prompt_tokens


class _Prompts(Struct):
    """Counts prompts without messages; some templates need one, whose tokens are subtracted."""

    session: Session
    backend: Backend
    _needed_message: Message | None = None

    async def count(self, system: str, tools: int) -> int:
        """The tokens of a prompt with this system message and the first tools."""
        if self._needed_message is None:
            try:
                return await _count(self._variant(system, tools), self.backend)
            except ShepherdError:  # the template refuses a conversation without messages
                self._needed_message = Message.user("x")
        variant = self._variant(system, tools, self._needed_message)
        tokens = await _count(variant, self.backend)
        return tokens - await self.backend.count_message_tokens(variant, self._needed_message)

    async def system_parts(self, whole: int) -> list[ContextPart]:
        """The parts of the system message, of which a prompt without tools has `whole` tokens."""
        text, parts = self.session.system_message, list[ContextPart]()
        for part in reversed([*instructions.parts(text)]):
            text = text.replace(f"\n{part.block}", "", 1)
            without_part = await self.count(text, 0)
            parts.insert(0, ContextPart(part.name, max(0, whole - without_part)))
            whole = without_part
        own = max(0, whole - await self.count("", 0))
        return [ContextPart(SYSTEM, own), *parts]

    def _variant(self, system: str, tools: int, *messages: Message) -> Session:
        """The session with another beginning and other messages; the first `tools` are offered.

        A forced tool and a begun answer would add tokens that are no part of what is counted.
        """
        offered = self.session.tools[:tools]
        return structs.replace(
            self.session,
            system_message=system,
            tools=offered,
            messages=list(messages),
            tool_choice=None,
            continues=False,
            times=[],
        )
