"""A session as it is sent to a provider, whose model may not see images or accept tools.

Images become lines of text. Tools are described in the prompt, and calls and results become text.
Models in this process get the same text if their template does not support tools, and the same
filter finds their printed calls.
"""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shepherd import errors, sampling
from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelTraits
from shepherd.backends.api.history import Rules, normalise
from shepherd.backends.base import Prefilled, cannot_see, new_images
from shepherd.backends.inprocess.conversation import Conversation, with_plain_tools
from shepherd.messages import Message, Role
from shepherd.session import Session, TokenLedger


class Prompt(Struct, frozen=True):
    """A session as it is sent to a provider.

    `session` has the images that the model can see, `sent` is what `adapter` sends, `counted` the
    same message by message (see `prompted_tools`).
    """

    session: Session
    sent: Session
    counted: Session
    adapter: Adapter
    request: ApiRequest

    @property
    def prompted_tools(self) -> bool:
        """Whether tools are offered only in the system message."""
        return bool(self.session.tools) and not self.sent.tools


class ApiPrefilled(Prefilled):
    """Holds no resources: the connection is opened for the answer."""

    def __init__(self, prompt: Prompt, prompt_tokens: int) -> None:
        self.prompt = prompt
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        self.logprobs: list[sampling.TokenLogprob] | None = None
        if prompt.session.sampling.logprobs is not None:
            self.logprobs = []


_BLIND = re.compile(
    r"image[ _]?(input|content|url|part)?s?\b.{0,30}\b(is|are) not (supported|allowed|enabled)"
    r"|(not|n't|cannot|unable to) (support|accept|handle|take|see|read)\w*"
    r"( \w+){0,3} (image|vision|multi-?modal)"
    r"|only supported by certain models|not a (multi-?modal|vision) model|at most 0 images?"
    r"|no endpoints found that support image|mmproj"
    r"|missing data required for image input|unknown variant [`'\"]?image_url"
    r"|(only|must be) (text|'text'|\"text\"|a string)\b.{0,40}\b(support|allow|image_url)",
    re.IGNORECASE,
)
_OF_TYPE = re.compile(r"mime|media.?type|image format|gif|webp|jpe?g|png", re.IGNORECASE)


def visible(session: Session, model: ModelTraits, types: Collection[str]) -> Session:
    """The session to send: images that the model can't accept are lines of text.

    `types` are the media types of images that the model's API accepts.
    """
    if not any(message.images for message in session.messages):
        return session
    return replace(session, messages=[visible_message(m, model, types) for m in session.messages])


def visible_message(message: Message, model: ModelTraits, types: Collection[str]) -> Message:
    """A message to send; `types` are the media types that the model's API accepts."""
    accepted = types if model.vision is not False else ()
    kept = tuple(image for image in message.images if image.media_type in accepted)
    if len(kept) == len(message.images):
        return message
    unseen = tuple(image for image in message.images if image not in kept)
    return replace(replace(message, images=unseen).without_images(), images=kept)


def check_new_images(
    messages: Sequence[Message], model: ModelTraits, types: Collection[str]
) -> None:
    """Raise ImageError if the model can't see an image of the new messages."""
    for image in new_images(messages):
        if model.vision is False:
            raise cannot_see(model.id)
        if image.media_type not in types:
            kind = image.media_type.removeprefix("image/").upper()
            name = image.name or "An image"
            raise errors.ImageError(f"{name} is a {kind}, which {model.id} can't read; send a PNG.")


def rejects_images(text: str) -> bool:
    """Whether a provider's error says that its model can't see, not that one image is wrong."""
    return bool(_BLIND.search(text)) and not _OF_TYPE.search(text)


REFUSING = frozenset({400, 422})

_FORBIDS = re.compile(
    r"extra[ _](?:inputs?|fields?|forbidden|propert\w+|keys?|param\w*|arguments?)|extraneous"
    r"|additional ?propert|un(?:recogni[sz]ed|known|expected|supported|permitted)"
    r"|(?:not|n't) (?:be )?(?:permitted|allowed|supported?|recogni[sz]ed?|known?|expected)\b",
    re.IGNORECASE,
)


def forbids(message: str) -> bool:
    """Whether an error says that a field is unknown, not that its value is wrong."""
    return bool(_FORBIDS.search(message))


NOTICE = (
    "{model} gets no tools from its server: it reads about them in words, and its calls "
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
_TOOLS_FIELD = re.compile(r"^(?:body\.)?tools$", re.MULTILINE)

_IN_ORDER = Rules(call_id=r"(?s).+", tool_name=r"(?s).+")
_TAKING_TURNS = replace(_IN_ORDER, merge=True)


def rejects_tools(message: str) -> bool:
    """Whether a provider's error says that it does not accept tools, not that one tool is wrong."""
    return bool(_REFUSAL.search(message)) or (
        forbids(message) and bool(_TOOLS_FIELD.search(message))
    )


def as_sent(session: Session, model: ModelTraits) -> Session:
    """The session to send: without tools if the model is known to support none.

    Results become messages of the user. Neighbours are merged, because the templates of such models
    require user and assistant to alternate.
    """
    if not _needs_prompt(session, model):
        return session
    # results must stand behind their calls before both become text
    conversation = normalise(session.system_message, session.messages, _IN_ORDER)
    # without the data that the API would need back with its calls
    messages = tuple(replace(m, extra={}) if m.tool_calls else m for m in conversation.messages)
    plain = with_plain_tools(Conversation(conversation.system, messages, tuple(session.tools)))
    turns = normalise(_with_choice(plain.system, session), plain.messages, _TAKING_TURNS)
    return _without_tools(session, turns.system, turns.messages)


def as_counted(session: Session, model: ModelTraits) -> Session:
    """The result of `as_sent`, message by message, so that each has its own count."""
    if not _needs_prompt(session, model):
        return session
    conversation = with_plain_tools(Conversation(session.system_message, (), tuple(session.tools)))
    messages = [message_as_counted(message, model) for message in session.messages]
    return _without_tools(session, _with_choice(conversation.system, session), messages)


def message_as_counted(message: Message, model: ModelTraits) -> Message:
    """A message as it is in `as_counted`."""
    if model.tools is not False or not _has_calls_or_result(message):
        return message
    plain = with_plain_tools(Conversation("", (message,))).messages[0]
    return replace(plain, images=message.images, extra={})


def _needs_prompt(session: Session, model: ModelTraits) -> bool:
    """Whether the session has tools or calls that the model's API does not support."""
    has_tools = bool(session.tools) or any(map(_has_calls_or_result, session.messages))
    return model.tools is False and has_tools


def _has_calls_or_result(message: Message) -> bool:
    return bool(message.tool_calls) or message.role is Role.TOOL


def _without_tools(session: Session, system: str, messages: Sequence[Message]) -> Session:
    """A session with these texts and without tools; times and ledger are those of its messages."""
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
    """The system message with the request for a call, if the session requires one."""
    choice = session.tool_choice
    if choice is None or not session.tools:
        return system
    calls = "one call" if choice.single else "one or more calls"
    if choice.name:
        calls = f"one call, of {choice.name}"
    return f"{system}\n\nYour next answer must be {calls}."
