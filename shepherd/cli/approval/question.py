"""The question before a tool runs: the full text, and the answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from shepherd.cli.approval.document import Line, fact, text_lines, warnings
from shepherd.tools.base import AccessKind, Claim
from shepherd.tools.invisible import reveal
from shepherd.tools.permissions.approval import ApprovalRequest, Choice
from shepherd.tools.permissions.rules import Rule

QUIET_SECONDS = 0.5
"""Input this soon after a question appears, or around a yes, is not an answer to it."""
MAX_IN_TITLE = 80
_IN_PREVIEW = frozenset(
    ["command", "path", "url", "method", "headers", "body", "content", "old_string", "new_string"]
)
"""Arguments that a tool's preview shows."""
_VERBS = {
    AccessKind.READ: "reads",
    AccessKind.WRITE: "writes",
    AccessKind.NETWORK: "connects to",
    AccessKind.ENVIRONMENT: "uses the variable",
}


class Answer(StrEnum):
    """The possible answers; the values are the words to type if there is no menu."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    NO = "no"
    TELL = "tell"

    @property
    def allows(self) -> bool:
        """Whether the tool runs."""
        return self not in (Answer.NO, Answer.TELL)


_KEYS = {
    Answer.ONCE: "y",
    Answer.SESSION: "s",
    Answer.ALWAYS: "a",
    Answer.NO: "n",
    Answer.TELL: "f",
}
_MEANINGS = {
    Answer.ONCE: "yes, this call",
    Answer.SESSION: "yes, for this session",
    Answer.ALWAYS: "yes, and keep the rule",
    Answer.NO: "no",
    Answer.TELL: "no, and tell the model why",
}
_PLAN_MEANINGS = {
    Answer.ONCE: "yes, in the mode before",
    Answer.SESSION: "yes, and change files here without asking (mode edits)",
    Answer.ALWAYS: "yes",
    Answer.NO: "no",
    Answer.TELL: "no, and tell the model what to change",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the menu; `rules` are exactly the rules that it would add."""

    answer: Answer
    rules: tuple[str, ...] = ()
    text: str = ""

    @property
    def letter(self) -> str:
        """Its key in the menu."""
        return _KEYS[self.answer]

    @property
    def meaning(self) -> str:
        """A short description."""
        return self.text or _MEANINGS[self.answer]


@dataclass(frozen=True, slots=True)
class Question:
    """A title, the text that must be read to its end before a yes counts, and the answers."""

    title: str
    cause: str
    lines: tuple[Line, ...]
    entries: tuple[Entry, ...]


def approval_question(request: ApprovalRequest) -> Question:
    """The question of a request; every shortened part is in the text in full."""
    caller = f" for {_short(request.caller)}" if request.caller else ""
    sandbox = f" {_short(request.sandbox)}" if request.sandbox else ""
    lasting = [(Answer.SESSION, request.session), (Answer.ALWAYS, request.always)]
    rules = [Entry(answer, tuple(map(_rule_text, result))) for answer, result in lasting if result]
    entries = (Entry(Answer.ONCE), *rules, Entry(Answer.NO), Entry(Answer.TELL))
    is_plan = request.is_plan
    title = "Carry out this plan" if is_plan else f"Allow {_short(request.call.name)}"
    return Question(
        title=f"{title}{caller}?{sandbox}",
        cause=_short(request.cause),
        lines=(*_lines(request),) if not is_plan else (*text_lines(request.preview),),
        entries=tuple(map(_plan_entry, entries)) if is_plan else entries,
    )


def _plan_entry(entry: Entry) -> Entry:
    return Entry(entry.answer, text=_PLAN_MEANINGS[entry.answer])


def choice_of(answer: Answer) -> Choice:
    """The choice that an answer makes."""
    return Choice(answer.value) if answer.allows else Choice.DENY


def _lines(request: ApprovalRequest) -> Iterator[Line]:
    rules = [rule.describe() for rule in (*request.session, *request.always)]
    url = str(request.call.arguments.get("url", ""))
    for warning in warnings([request.preview, url, *_facts(request), *rules]):
        yield fact(warning, "warn")
    if request.preview:
        yield from text_lines(request.preview)
    for text in _facts(request):
        yield fact(text, "quiet")


def _facts(request: ApprovalRequest) -> Iterator[str]:
    """Facts that the preview does not show."""
    named = {
        "tool": request.call.name,
        "caller": request.caller,
        "because of": request.cause,
        "sandbox": request.sandbox,
    }
    for name, text in named.items():
        if len(reveal(text)) > MAX_IN_TITLE:
            yield f"{name}: {text}"
    for name, value in request.call.arguments.items():
        if not request.preview or name not in _IN_PREVIEW:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{name} = {text}"
    for access in request.accesses:
        if access.kind in _VERBS and access.claim is not Claim.MENTION:
            yield f"{_VERBS[access.kind]} {access.target}"


def _short(text: str) -> str:
    line = reveal(text)
    return line if len(line) <= MAX_IN_TITLE else line[: MAX_IN_TITLE - 1] + "…"


def _rule_text(rule: Rule) -> str:
    return reveal(rule.describe())
