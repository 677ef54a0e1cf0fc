"""An assistant for SDKs: it calls each tool once, fills schemas, and otherwise says hello."""

import json
from typing import Any

from shepherd.messages import Role
from shepherd.session import Session
from tests.clients.models import call, results, say

HELLO = "Hello, shepherd."
VALUES: dict[str, Any] = {
    "place": "Bern",
    "name": "Ada",
    "age": 36,
    "input": 3,
    "answer_style": "pirate",
    "setup": "Why are cats good at games?",
    "punchline": "They have nine lives.",
    "location": "San Francisco, CA",
    "customer_name": "你好 こんにちは",
}
"""The arguments that the assistant knows, by their names."""
SUNNY = "sunny"
WEATHER = f"It is {SUNNY}."


def assistant(session: Session) -> str:
    """The script of the assistant's answer."""
    wanted = session.output_format
    if wanted is not None and wanted.schema is not None:
        return say(json.dumps(fill(wanted.schema) or _named_values(session)))
    called = {
        one.name
        for message in session.messages[_last_question(session) :]
        for one in message.tool_calls
    }
    choice = session.tool_choice
    tools = [tool for tool in session.tools if tool.name not in called]
    if choice is not None and choice.name:
        tools = [tool for tool in session.tools if tool.name == choice.name]
    if tools:
        return call(tools[0].name, **fill(tools[0].parameters))
    done = results(session)
    return say(f"It is {done[-1]}." if done else HELLO)


def fill(schema: dict[str, Any]) -> dict[str, Any]:
    """The values of a schema's properties that the assistant knows."""
    return {name: VALUES[name] for name in schema.get("properties", {}) if name in VALUES}


def _named_values(session: Session) -> dict[str, Any]:
    """The values whose names are quoted in the prompt."""
    prompt = session.system_message + session.messages[-1].plain_text
    return {
        name: value
        for name, value in VALUES.items()
        if f'"{name}"' in prompt or f"'{name}'" in prompt
    }


def _last_question(session: Session) -> int:
    roles = [message.role for message in session.messages]
    return max((i for i, role in enumerate(roles) if role is Role.USER), default=0)
