"""A conversation as a file: JSON, Markdown, or a page for a browser."""

import json
from html import escape
from pathlib import Path

from shepherd.messages import Message, Role, message_to_json
from shepherd.session import Session
from shepherd.tools.deferred import open_call
from shepherd.tools.text import fenced

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto;
  padding: 0 1rem; }}
pre {{ overflow-x: auto; padding: .7rem; border: 1px solid #8886; border-radius: .3rem; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .9em; }}
section {{ margin: 1.5rem 0; }}
h2 {{ font-size: 1rem; margin-bottom: .3rem; }}
.user {{ border-left: .25rem solid #0a7ea4; padding-left: .8rem; }}
.plain {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid #8886; padding: .2rem .6rem; }}
blockquote {{ border-left: .2rem solid #8886; margin-left: 0; padding-left: .8rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
{sections}
</body>
</html>
"""
_TITLES = {Role.USER: "You", Role.ASSISTANT: "Model"}
_MAX_OPEN = 400
"""Characters of a result that is shown without a click."""


def save_conversation(session: Session, cwd: Path, name: str) -> Path:
    """Write the conversation to a new file; raises OSError.

    A name that ends in `.json` or `.html` gets that form, any other Markdown.
    """
    path = cwd / Path(name).expanduser()
    forms = {".json": as_json, ".html": as_html, ".htm": as_html}
    text = forms.get(path.suffix.lower(), as_markdown)(session)
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def as_json(session: Session) -> str:
    """The session's id, system message and messages as one JSON object."""
    data = {
        "id": session.id,
        "system_message": session.system_message,
        "messages": [message_to_json(m.without_images()) for m in session.messages],
    }
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def as_markdown(session: Session) -> str:
    """The conversation as a document, with calls and results in code blocks."""
    parts = [f"# Shepherd session {session.id}"]
    for message in session.messages:
        parts += _message_parts(message)
    return "\n\n".join(parts) + "\n"


def _message_parts(message: Message) -> list[str]:
    """The paragraphs of a message in Markdown."""
    if message.role is Role.TOOL:
        return [f"**{message.name}** gave:", fenced(message.plain_text)]
    role = Role.SYSTEM if message.is_hint else message.role
    parts = [f"## {_TITLES.get(role, 'System')}"]
    if message.reasoning:
        quoted = message.reasoning.strip().replace("\n", "\n> ")
        parts.append(f"> {quoted}")
    if text := message.plain_text.strip():
        parts.append(text)
    for call in map(open_call, message.tool_calls):
        parts += [f"**{call.name}** called with:", fenced(call.arguments_json, "json")]
    return parts


def as_html(session: Session) -> str:
    """The conversation as one page without scripts, pictures or anything from a network."""
    sections = "\n".join(_section(message) for message in session.messages)
    return _PAGE.format(title=escape(f"Shepherd session {session.id}"), sections=sections)


def _section(message: Message) -> str:
    """A message in HTML; only text of the model is read as Markdown, all other text is as typed."""
    if message.role is Role.TOOL:
        return _details(f"{message.name} gave", message.plain_text)
    role = Role.SYSTEM if message.is_hint else message.role
    parts = [f"<h2>{_TITLES.get(role, 'System')}</h2>"]
    if message.reasoning:
        parts.append(_details("reasoning", message.reasoning.strip()))
    text = message.plain_text.strip()
    if role is Role.ASSISTANT:
        parts.append(_rendered(text))
    elif text:
        parts.append(f'<div class="plain">{escape(text)}</div>')
    calls = map(open_call, message.tool_calls)
    parts += [_details(f"{call.name} called with", call.arguments_json) for call in calls]
    body = "\n".join(parts)
    return f'<section class="{role.value}">\n{body}\n</section>'


def _details(title: str, text: str) -> str:
    """A text under a title that opens and closes it; a long one is closed at first."""
    is_open = " open" if len(text) <= _MAX_OPEN else ""
    code = f"<pre><code>{escape(text)}</code></pre>"
    return f"<details{is_open}><summary>{escape(title)}</summary>{code}</details>"


def _rendered(text: str) -> str:
    """Markdown as HTML; tags in it are text, and pictures are links."""
    from markdown_it import MarkdownIt  # slow to import

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return str(parser.disable("image").render(text))
