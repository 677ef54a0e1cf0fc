"""A conversation as a file to keep or to show."""

import json
from pathlib import Path

from shepherd.messages import Message, Role, message_to_json
from shepherd.session import Session


def save_conversation(session: Session, cwd: Path, name: str) -> Path:
    """Write the conversation to a new file, as JSON if its name ends so; raises OSError."""
    path = cwd / Path(name).expanduser()
    text = as_json(session) if path.suffix == ".json" else as_markdown(session)
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
    """The conversation to read: who said what, calls and results in code blocks."""
    parts = [f"# Shepherd session {session.id}"]
    for message in session.messages:
        parts += _message_parts(message)
    return "\n\n".join(parts) + "\n"


def _message_parts(message: Message) -> list[str]:
    if message.role is Role.TOOL:
        return [f"**{message.name}** gave:", fenced(message.plain_text)]
    who = Role.SYSTEM if message.is_hint else message.role
    title = {Role.USER: "## You", Role.ASSISTANT: "## Model"}.get(who, "## System")
    parts = [title]
    if message.reasoning:
        quoted = message.reasoning.strip().replace("\n", "\n> ")
        parts.append(f"> {quoted}")
    if text := message.plain_text.strip():
        parts.append(text)
    for call in message.tool_calls:
        parts += [f"**{call.name}** called with:", fenced(call.arguments_json, "json")]
    return parts


def fenced(text: str, language: str = "") -> str:
    """The text in a fence that nothing in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
