"""Coding agents run a tool of their own and finish, three times in a row."""

from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import (
    CLAUDE_CODE,
    CLINE,
    CODEX,
    CONTINUE,
    GEMINI_CLI,
    HERMES_AGENT,
    KILOCODE,
    KIMI_CODE,
    NOTES,
    OPENCODE,
    PI,
    PI_GEMINI,
    PI_MESSAGES,
    PI_RESPONSES,
    QWEN_CODE,
    Agent,
)
from tests.clients.models import Request


def installed(agent: Agent, *marks: pytest.MarkDecorator) -> Any:
    """The agent as a parameter of a test, skipped where it is not installed."""
    missing = pytest.mark.skipif(not agent.installed, reason=f"{agent.name} is not installed")
    return pytest.param(agent, marks=[missing, *marks], id=f"{agent.program}-{agent.api}")


AGENTS = [
    installed(CODEX, pytest.mark.client("Codex", "Responses")),
    installed(CLAUDE_CODE, pytest.mark.client("Claude Code", "Messages")),
    installed(GEMINI_CLI, pytest.mark.client("gemini-cli", "Gemini")),
    installed(OPENCODE, pytest.mark.client("opencode", "Chat")),
    installed(PI, pytest.mark.client("pi", "Chat")),
    installed(PI_RESPONSES, pytest.mark.client("pi", "Responses")),
    installed(PI_MESSAGES, pytest.mark.client("pi", "Messages")),
    installed(PI_GEMINI, pytest.mark.client("pi", "Gemini")),
    installed(QWEN_CODE, pytest.mark.client("qwen-code", "Chat")),
    installed(CLINE, pytest.mark.client("cline", "Chat")),
    installed(CONTINUE, pytest.mark.client("continue", "Chat")),
    installed(HERMES_AGENT, pytest.mark.client("hermes-agent", "Chat")),
    installed(KILOCODE, pytest.mark.client("kilocode", "Chat")),
    installed(KIMI_CODE, pytest.mark.client("kimi-code", "Chat")),
]


@pytest.mark.parametrize("agent", AGENTS)
def test_sessions_run_a_tool_and_share_their_beginning(agent: Agent, tmp_path: Path) -> None:
    sessions = agent.run_sessions(tmp_path)
    for first, second in sessions:
        check_round(first, second)
        assert (first.system, first.tools) == (sessions[0][0].system, sessions[0][0].tools)
    for first, _ in sessions[1:]:
        assert first.cached_tokens >= agent.shared * first.prompt_tokens


def check_round(first: Request, second: Request) -> None:
    """The second request extends the first: all of its prompt comes from the cache."""
    answer, result = second.messages[len(first.messages) :]
    assert second.messages[: len(first.messages)] == first.messages
    assert second.system == first.system
    assert second.cached_tokens >= first.prompt_tokens - 1
    assert answer.content == "I look."
    assert NOTES in result.plain_text
    assert "billing" not in first.system
