"""Tools for models whose server takes none: told in words, with calls and results as text.

The text is what models in this process are told whose template knows no tools either, and what they
print as a call is found by the same filter.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from shepherd.backends.api.adapter import ModelTraits
from shepherd.backends.api.coerce import as_objects
from shepherd.backends.api.history.normalise import Rules, normalise
from shepherd.backends.inprocess.prompt.adapt import with_plain_tools
from shepherd.backends.inprocess.prompt.conversation import Conversation
from shepherd.messages import JsonObject, Message, Role
from shepherd.session import Session, TokenLedger
from shepherd.structure import ToolChoice

REFUSING = frozenset({400, 422})

_FORBIDS = re.compile(
    r"extra[ _](?:inputs?|fields?|forbidden|propert\w+|keys?|param\w*|arguments?)|extraneous"
    r"|additional ?propert|un(?:recogni[sz]ed|known|expected|supported|permitted)"
    r"|(?:not|n't) (?:be )?(?:permitted|allowed|supported?|recogni[sz]ed?|known?|expected)\b",
    re.IGNORECASE,
)


def forbids(said: str) -> bool:
    """Whether an error says that something is not known, not that its value is wrong."""
    return bool(_FORBIDS.search(said))


def refuses_field(said: str, names: Collection[str]) -> bool:
    """Whether an error says that one of these fields is not known."""
    named = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said) for name in names)
    return named and forbids(said)


def fields_of(body: JsonObject) -> set[str]:
    """The names of a request's fields, and of those of its messages."""
    return {*body, *(name for message in as_objects(body.get("messages")) for name in message)}


NOTICE = (
    "{model} is not given tools by its server: they are described to it in words, and its calls "
    "are read from its text."
)

_SOME = r"(?:tools?|functions?)(?:[ _-](?:use|usage|calls?|calling))?\b(?![ _-]choice)"
_REFUSAL = re.compile(
    r"(?:not|n't) (?:currently )?support (?:(?:native|any|the use of|param\w*:?) )*\W{0,3}"
    rf"{_SOME}"
    rf"|(?<![\w.])(?<!parallel )(?<!parallel_){_SOME}\W{{0,3}} ?(?:is|are|has|have)(?: ?n[o']t)"
    r"(?: \w+){0,2} (?:supported|enabled|available|allowed)"
    rf"|no endpoints found that support {_SOME}"
    r"|requires --(?:jinja|enable-auto-tool-choice|tool-call-parser)"
    r"|un(?:supported|known|recogni[sz]ed|expected) (?:request )?"
    r"(?:param\w*|arguments?|fields?|propert\w+|names?)(?: supplied)?\W{1,4}tools\b(?![.\[])"
    r"|property \W?tools\W? is unsupported",
    re.IGNORECASE,
)
_ACCUSED = re.compile(r"^(?:body\.)?tools$", re.MULTILINE)

_IN_ORDER = Rules(call_id=r"(?s).+", tool_name=r"(?s).+")
_TAKING_TURNS = replace(_IN_ORDER, merge=True)


def rejects_tools(said: str) -> bool:
    """Whether a provider's error says that it takes no tools, not that one tool is wrong."""
    return bool(_REFUSAL.search(said)) or (forbids(said) and bool(_ACCUSED.search(said)))


def as_sent(session: Session, model: ModelTraits) -> Session:
    """The session as the model is asked with it: one without tools if it is known to have none.

    Results become what the user says; neighbours become one message, since the templates of such
    models want user and assistant to take turns.
    """
    if not _is_told(session, model):
        return session
    told = normalise(session.system_message, session.messages, _IN_ORDER)
    messages = tuple(map(_bare, told.messages))
    plain = with_plain_tools(Conversation(told.system, messages, tuple(session.tools)))
    turns = normalise(_with_choice(plain.system, session), plain.messages, _TAKING_TURNS)
    return _toolless(session, turns.system, turns.messages)


def as_counted(session: Session, model: ModelTraits) -> Session:
    """What `as_sent` gives, message by message, so that each has its own count."""
    if not _is_told(session, model):
        return session
    told = with_plain_tools(Conversation(session.system_message, (), tuple(session.tools)))
    messages = [message_as_counted(message, model) for message in session.messages]
    return _toolless(session, _with_choice(told.system, session), messages)


def message_as_counted(message: Message, model: ModelTraits) -> Message:
    """A message as it stands in `as_counted`."""
    if model.tools is not False or not _is_of_tools(message):
        return message
    plain = with_plain_tools(Conversation("", (message,))).messages[0]
    return replace(plain, images=message.images, extra={})


def _is_told(session: Session, model: ModelTraits) -> bool:
    """Whether there is anything of tools that the model can't be told in its API's own way."""
    told = bool(session.tools) or any(map(_is_of_tools, session.messages))
    return model.tools is False and told


def _is_of_tools(message: Message) -> bool:
    return bool(message.tool_calls) or message.role is Role.TOOL


def _bare(message: Message) -> Message:
    """The message without what the API wants back with its calls, which it does not get."""
    return replace(message, extra={}) if message.tool_calls and message.extra else message


def _toolless(session: Session, system: str, messages: Sequence[Message]) -> Session:
    return replace(
        session,
        system_message=system,
        messages=list(messages),
        tools=[],
        tool_choice=None,
        times=[],
        ledger=TokenLedger(),
    )


def _with_choice(system: str, session: Session) -> str:
    """The system message with the wish for a call, where the session has one."""
    choice = session.tool_choice
    return f"{system}\n\n{_wish(choice)}" if choice is not None and session.tools else system


def _wish(choice: ToolChoice) -> str:
    if choice.name:
        return f"Your next answer must be one call, of {choice.name}."
    return f"Your next answer must be {'one call' if choice.single else 'one or more calls'}."
