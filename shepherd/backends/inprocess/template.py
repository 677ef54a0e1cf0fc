"""A model's chat template: compiled once in a sandbox, rendered per request."""

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from msgspec.structs import replace

from shepherd.backends.inprocess import template_environment
from shepherd.backends.inprocess.conversation import (
    Conversation,
    Dialect,
    adapt,
    find_dialect,
    sealed,
    template_messages,
    template_tools,
)
from shepherd.backends.inprocess.render_guard import ExhaustedError
from shepherd.backends.inprocess.render_process import RenderError, RenderProcess
from shepherd.backends.inprocess.special import SpecialTexts
from shepherd.errors import InvalidRequestError

logger = logging.getLogger(__name__)

MAX_SOURCE = 262_144
"""Characters; longer templates are not used."""

_MAX_EXHAUSTED = 3
"""After so many renderings without an end a template is not used any more."""

_BASE_ROOM = 1 << 20
_ROOM_PER_CHARACTER, _ROOM_PER_ITEM = 8, 1 << 16
"""A text may be so much longer than what it is made of."""

CHATML = """\
{%- if tools and messages[0].role != 'system' %}
    {%- set messages = [{'role': 'system', 'content': ''}] + messages %}
{%- endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.reasoning_content %}
        {{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- m.content }}
    {%- if loop.first and tools %}
        {{- '\\n\\n# Tools\\n\\nYou may call one or more of these functions:\\n<tools>' }}
        {%- for tool in tools %}
            {{- '\\n' + (tool | tojson) }}
        {%- endfor %}
        {{- '\\n</tools>\\n\\nFor each call, write a JSON object within <tool_call></tool_call>:' }}
        {{- '\\n<tool_call>\\n{"name": <name>, "arguments": <object>}\\n</tool_call>' }}
    {%- endif %}
    {%- for call in m.tool_calls or [] %}
        {%- set function = {'name': call.name, 'arguments': call.arguments} %}
        {{- '\\n' if m.content or not loop.first }}
        {{- '<tool_call>\\n' + (function | tojson) + '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}
"""
"""The template for models without one, and for models whose template fails."""


RenderText = Callable[[Mapping[str, Any], datetime, int], str]
"""The text for these variables at this time, of at most so many characters.

Raises RenderError or RENDER_ERRORS.
"""


class TemplateFailedError(Exception):
    """A template raised instead of rendering."""


class ChatTemplate:
    """One template with its model's special texts; not thread-safe.

    Unsupported features are rewritten: a system message goes into the first user message, tools
    and calls become text, and several calls become several messages.
    """

    def __init__(self, source: str, specials: SpecialTexts, constants: Mapping[str, str]) -> None:
        self.source = source
        self._specials = specials
        self._constants = dict(constants)
        self._exhausted = 0
        self._has_rendered = False

    @property
    def lacks_calls(self) -> bool:
        """Whether it offers tools, but does not write calls."""
        return self._dialect.tools and not self._dialect.calls

    def write_calls_as_text(self) -> None:
        """Show tools, calls and results as text from now on, as for a template without tools."""
        self._dialect = replace(self._dialect, tools=False)

    def render(self, conversation: Conversation, *, answer: bool = True) -> str:
        """The conversation as text with seals in it; raises TemplateFailedError.

        `answer` asks for the beginning of the assistant's next message too.
        """
        if conversation.continues:
            return self._render_begun(conversation)
        return self._render(conversation, self._dialect, answer=answer)

    def _render_begun(self, conversation: Conversation) -> str:
        """The conversation up to the end of its last message, which the answer continues."""
        *others, last = conversation.messages
        mark = secrets.token_hex(16)  # shows where the last message's text ends
        if last.reasoning and not last.content:
            marked = replace(last, reasoning=last.reasoning + mark)
        else:
            marked = replace(last, content=last.content + mark)
        whole = replace(conversation, messages=(*others, marked))
        rendered = self._render(whole, self._dialect, answer=False)
        text, written_mark, _ = rendered.rpartition(mark)
        if not written_mark:  # the template leaves that part of a message out
            message = "The chat template of this model can't continue this message."
            raise InvalidRequestError(message, "messages")
        return text

    @cached_property
    def _render_text(self) -> RenderText:
        """What renders the template: here, or in a process of its own if it is odd."""
        if len(self.source) > MAX_SOURCE:
            return _broken(f"it has {len(self.source):,} characters")
        try:
            return partial(
                template_environment.render_template,
                template_environment.compile_template(self.source),
            )
        except template_environment.OddTemplateError as odd:
            logger.info("The chat template uses %s: it is rendered in a process of its own", odd)
            return RenderProcess(self.source).render
        except template_environment.RENDER_ERRORS as error:
            return _broken(str(error) or type(error).__name__)

    @cached_property
    def _dialect(self) -> Dialect:
        return find_dialect(self.source, self._attempt)

    def _attempt(self, conversation: Conversation, dialect: Dialect) -> str:
        """The conversation as text, "" if the template fails."""
        try:
            return self._render(conversation, dialect, answer=True)
        except TemplateFailedError:
            return ""

    def _render(self, conversation: Conversation, dialect: Dialect, *, answer: bool) -> str:
        """The conversation as the dialect needs it, as text; raises TemplateFailedError."""
        adapted = adapt(conversation, dialect)
        now = conversation.began or datetime.now().astimezone()
        variables = self._variables(adapted, now)
        variables["messages"] = template_messages(adapted, self._specials, dialect)
        variables["add_generation_prompt"] = answer
        try:
            text = self._render_text(variables, now, _room(adapted))
        except ExhaustedError as error:
            self._exhausted += 1
            # Soon no more are tried, for all wait for them.
            if self._exhausted == _MAX_EXHAUSTED or not self._has_rendered:
                self._render_text = _broken(str(error))
            raise TemplateFailedError(str(error)) from error
        except (RenderError, *template_environment.RENDER_ERRORS) as error:
            raise TemplateFailedError(str(error) or type(error).__name__) from error
        self._has_rendered = True
        return text

    def _variables(self, conversation: Conversation, now: datetime) -> dict[str, Any]:
        """What a template may use besides the messages."""
        values = conversation.template_values
        variables: dict[str, Any] = {
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
            # A request may replace what is above, and nothing below.
            **{name: sealed(value, self._specials.seal_all) for name, value in values.items()},
            **self._constants,
            "enable_thinking": conversation.thinking,
            "thinking": conversation.thinking,
        }
        variables.pop("tools", None)  # a request's own values can't offer tools
        tools = template_tools(conversation.tools, self._specials)
        if tools is not None:  # templates ask whether `tools` is defined
            variables["tools"] = tools
        # the name and the form of Firefunction's template
        variables["functions"] = json.dumps(tools, ensure_ascii=False) if tools else ""
        return variables


def _broken(reason: str) -> RenderText:
    """For a template that can't be used."""

    def refuse(_variables: Mapping[str, Any], _now: datetime, _room: int) -> str:
        raise RenderError(reason)

    return refuse


def _room(conversation: Conversation) -> int:
    """The length of the longest text that a template may write for a conversation."""
    messages = conversation.messages
    calls = [call for message in messages for call in message.tool_calls]
    arguments = (value for call in calls for value in call.arguments.values())
    characters = len(conversation.system) + sum(len(m.content) + len(m.reasoning) for m in messages)
    characters += sum(len(value) for value in arguments if isinstance(value, str))
    items = len(messages) + len(calls) + len(conversation.tools)
    return _BASE_ROOM + _ROOM_PER_CHARACTER * characters + _ROOM_PER_ITEM * items
