"""A model's chat template: compiled once in a sandbox, rendered per request."""

import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment
from msgspec.structs import replace

from shepherd.backends.inprocess.conversation import (
    Conversation,
    Dialect,
    adapt,
    find_dialect,
    sealed,
    template_messages,
    template_tools,
)
from shepherd.backends.inprocess.special import SpecialTexts
from shepherd.errors import InvalidRequestError

RENDER_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors that a template may raise for a conversation that it does not support."""

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


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks text for training, as plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)  # the opening tag
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def compile_template(source: str) -> Template:
    """Compile a model's template; raises TemplateError if it is not Jinja.

    The last ones are kept: to compile one takes longer than to load a small model. Some templates
    change their lists; the lists are therefore copies.
    """
    environment = SandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )
    environment.filters["tojson"] = to_json
    return environment.from_string(source, {"raise_exception": raise_exception})


def to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001 - templates pass it by position too
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001 - templates pass it by position too
) -> str:
    """JSON as templates expect it: no HTML escapes, generators as lists."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=list,
    )


def raise_exception(message: str) -> None:
    """The function that templates call to refuse a conversation."""
    raise TemplateError(message)


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
    def _compiled(self) -> Template:
        try:
            return compile_template(self.source)
        except RENDER_ERRORS as error:
            raise TemplateFailedError(str(error)) from error

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
        variables = self._variables(adapted)
        variables["messages"] = template_messages(adapted, self._specials, dialect)
        variables["add_generation_prompt"] = answer
        try:
            return self._compiled.render(variables)
        except RENDER_ERRORS as error:
            raise TemplateFailedError(str(error) or type(error).__name__) from error

    def _variables(self, conversation: Conversation) -> dict[str, Any]:
        """What a template may use besides the messages."""
        now = conversation.began or datetime.now().astimezone()
        values = conversation.template_values
        variables: dict[str, Any] = {
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
            # A request may replace what is above, and nothing below.
            **{name: sealed(value, self._specials.seal_all) for name, value in values.items()},
            **self._constants,
            "enable_thinking": conversation.thinking,
            "thinking": conversation.thinking,
            "strftime_now": now.strftime,
            "raise_exception": raise_exception,
        }
        variables.pop("tools", None)  # a request's own values can't offer tools
        tools = template_tools(conversation.tools, self._specials)
        if tools is not None:  # templates ask whether `tools` is defined
            variables["tools"] = tools
        return variables
