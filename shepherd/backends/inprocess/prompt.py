"""Turns a conversation into the tokens of a request."""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.inprocess.conversation import Conversation
from shepherd.backends.inprocess.formats import proven_format
from shepherd.backends.inprocess.fragments import FragmentTokenizer, Tail
from shepherd.backends.inprocess.special import SpecialTexts, TemplateModel, without_marks
from shepherd.backends.inprocess.template import (
    CHATML,
    MAX_SOURCE,
    ChatTemplate,
    TemplateFailedError,
)
from shepherd.backends.output.derive import with_separator, with_thought
from shepherd.backends.output.known import unwritten
from shepherd.backends.output.style import OutputStyle, ThinkMarkers, detect_style
from shepherd.errors import InvalidRequestError
from shepherd.messages import Message, Role, ToolCall, ToolSpec

logger = logging.getLogger(__name__)

_TAIL_CHARACTERS = 256
_MESSAGE_OVERHEAD = 8
_HEADS = 8
"""System messages with tools whose tokens are known."""
_Head = tuple[str, tuple[ToolSpec, ...]]
_USER = Message.user(".")
_OTHER = Message.user("\u2400")
"""A message that nobody writes: where it begins, a conversation differs."""
_CALL = ToolCall("call00000", "tool", {})
_TOOL = ToolSpec("tool", "A tool.", {"type": "object", "properties": {}})
_EVERYTHING = Conversation(
    "Be brief.",
    (
        Message.user("Where?"),
        Message.assistant("There.", reasoning="Easy.", tool_calls=(_CALL,)),
        Message.tool(_CALL, "Here."),
        Message.assistant("So.\n"),
        Message.user("Why?\n\n"),
    ),
)


class Prompt(Struct, frozen=True):
    """A request's tokens; `text_tail` is the end of the rendered text.

    `warning` says why the model's own template was not used, "" if it was.
    """

    tokens: list[int]
    tail: Tail
    text_tail: str
    warning: str = ""


class PromptBuilder:
    """Renders and tokenizes for one model; one thread at a time.

    Work grows with the new text: unchanged pieces are not tokenized again.
    """

    def __init__(
        self, model: TemplateModel, template: str | None = None, tool_template: str | None = None
    ) -> None:
        """Use the model's own templates, or these; "" means ChatML."""
        vocab = model.vocab
        if template is None:
            template = model.chat_template()
            # Without a default template ChatML writes everything, tools too.
            tool_template = model.chat_template("tool_use") if template else ""
        self.source = template or CHATML
        tool_source = tool_template or self.source
        markers_in = f"{self.source[:MAX_SOURCE]}{tool_source[:MAX_SOURCE]}"
        self.specials = specials = SpecialTexts(vocab, markers_in)
        constants = {"bos_token": vocab.text(vocab.bos), "eos_token": vocab.text(vocab.eos)}
        self.vocab = vocab
        self._fragments = FragmentTokenizer(vocab, specials)
        self._default = ChatTemplate(self.source, specials, constants)
        self._tool_use = self._default
        if tool_source != self.source:
            self._tool_use = ChatTemplate(tool_source, specials, constants)
        self._fallback = ChatTemplate(CHATML, specials, constants)
        self.notice = ""
        """What the user should know of the template; "" if there is nothing."""
        self._base_counts: dict[Role, int] = {}
        self._heads = deque[tuple[_Head, list[int]]](maxlen=_HEADS)
        self._tokenize = self._fragments.tokenize
        if not self._pieces_join():
            logger.info("Prompts are tokenized as a whole: special tokens overlap")
            self._tokenize = self._fragments.tokenize_whole

    def build(
        self,
        conversation: Conversation,
        check: Callable[[str], None] | None = None,
        images: Mapping[str, Sequence[int]] | None = None,
        closes: Sequence[ThinkMarkers] = (),
    ) -> Prompt:
        """The prompt for the assistant's next message; `check` sees its text before its tokens.

        `images` are the tokens of the conversation's images by their marks. Reasoning that the
        template begins with the markers of `closes` is ended again.
        """
        rendered, warning = self._render(conversation)
        begun = next((pair for pair in closes if rendered.rstrip().endswith(pair.open)), None)
        if begun is not None:
            rendered = f"{rendered.rstrip()}\n\n{begun.close}" + "\n" * begun.after
        if check is not None:
            check(rendered)
        tokens, tail = self._with_images(rendered, images) if images else self._tokenize(rendered)
        text_tail = without_marks(rendered[-_TAIL_CHARACTERS:])
        return Prompt(tokens, tail, text_tail, warning)

    def head(self, conversation: Conversation, tokens: Sequence[int]) -> int:
        """How many tokens of a prompt come from its system message and its tools."""
        parts = (conversation.system, conversation.tools)
        head = next((head for known, head in self._heads if known == parts), None)
        if head is None:
            alone = replace(conversation, messages=(_OTHER,), images={}, continues=False)
            head = self._tokenize(self._render(alone, answer=False)[0])[0]
            self._heads.append((parts, head))
        return next((i for i, (a, b) in enumerate(zip(head, tokens, strict=False)) if a != b), 0)

    def rendered(self, conversation: Conversation, *, answer: bool = True) -> str:
        """The prompt as text, as it would be without control tokens in its content."""
        return without_marks(self._render(conversation, answer=answer)[0])

    def output_style(self) -> OutputStyle:
        """How this model writes reasoning and calls, by its template and special tokens.

        If its calls can't be described or read, it is told to write them in Shepherd's own way.
        """
        style = detect_style(self.source, self.specials.controls)
        style = with_thought(style, self.rendered_probe)
        style = with_separator(style, self.rendered_probe)
        ends = [self.vocab.text(token) for token in self.vocab.ends]
        calls = proven_format(self.rendered_probe, ends, style)
        if calls.notation is None:
            self.notice = (
                f"The tool calls of this model are not understood: {calls.problem}. It is told to "
                "write them as JSON between <tool_call> and </tool_call> instead."
            )
            self._default.write_calls_as_text()
            self._tool_use.write_calls_as_text()
            calls = proven_format(self.rendered_probe, ends, style)
        own = unwritten(self.source) if self._tool_use.lacks_calls else ()
        return replace(style, notations=(*own, *filter(None, (calls.notation,))))

    def rendered_probe(self, message: Message | None) -> str:
        """A conversation that ends with this message, or as a prompt for one; "" if that fails."""
        messages = (_USER, message) if message else (_USER,)
        try:
            rendered, _ = self._render(Conversation("", messages, (_TOOL,)), answer=message is None)
        except TemplateFailedError:
            return ""
        return without_marks(rendered)

    def remember_generated(self, tail: Tail, tokens: Sequence[int], characters: int) -> None:
        """Note an answer's tokens, so that its text gives the same tokens in the next prompt.

        `characters` is the length of the answer's text that was accepted.
        """
        self._fragments.remember_generated(tail, tokens, characters)

    def learn(self, prompts: Sequence[Sequence[int]]) -> None:
        """Note the tokens of earlier runs' prompts: their text gives the same tokens again."""
        for tokens in prompts:
            self._fragments.learn(tokens)

    def count_message(self, message: Message) -> int:
        """The approximate number of tokens that a message adds to a conversation."""
        message = message.without_images()
        earlier_messages = _before(message)
        try:
            if message.role not in self._base_counts:
                self._base_counts[message.role] = self._count(earlier_messages)
            added = self._count((*earlier_messages, message)) - self._base_counts[message.role]
        except TemplateFailedError:
            added = 0
        if added > 0:
            return added
        # The template refuses such a message or leaves it out.
        calls = "".join(call.name + call.arguments_json for call in message.tool_calls)
        text = f"{message.reasoning}{message.content}{calls}"
        return len(self.vocab.tokenize(text)) + _MESSAGE_OVERHEAD

    def _render(self, conversation: Conversation, *, answer: bool = True) -> tuple[str, str]:
        """The conversation as text, and a warning if ChatML had to be used.

        `answer` asks for the beginning of the assistant's next message too.
        """
        template = self._tool_use if conversation.tools else self._default
        try:
            return template.render(conversation, answer=answer), ""
        except TemplateFailedError as error:
            if conversation.template_values:
                # They may be its cause, and then the request is to blame, not the template.
                message = f"The model's chat template refuses these values: {error}"
                raise InvalidRequestError(message, "chat_template_kwargs") from error
            warning = f"The model's chat template failed ({error}); ChatML is used instead."
            return self._fallback.render(conversation, answer=answer), warning

    def _with_images(
        self, rendered: str, images: Mapping[str, Sequence[int]]
    ) -> tuple[list[int], Tail]:
        """The tokens of a text that has marks of images."""
        any_mark = "|".join(map(re.escape, images))
        first, *others = re.split(f"({any_mark})", rendered)
        tokens, tail = self._tokenize(first)
        for mark, text_behind in zip(others[::2], others[1::2], strict=True):
            following, tail = self._tokenize(text_behind, begins=False)
            tokens += [*images[mark], *following]
        return tokens, tail

    def _pieces_join(self) -> bool:
        """Whether a conversation with all features may be tokenized piece by piece."""
        try:
            rendered = self._tool_use.render(_EVERYTHING)
        except TemplateFailedError:
            rendered = self._fallback.render(_EVERYTHING)
        return self._fragments.joins_exactly(rendered)

    def _count(self, messages: tuple[Message, ...]) -> int:
        """The tokens of these messages as a conversation; raises TemplateFailedError."""
        rendered = self._tool_use.render(Conversation("", messages), answer=False)
        return len(self._tokenize(rendered)[0])


def _before(message: Message) -> tuple[Message, ...]:
    """The shortest conversation that this message may follow."""
    if message.role is Role.USER:
        return (_USER, Message.assistant("."))
    if message.role is Role.TOOL:
        return (_USER, Message.assistant("", tool_calls=(_CALL,)))
    return (_USER,)
