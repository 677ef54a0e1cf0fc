"""Coding agents, run without a terminal, with the settings that stand on the page."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shepherd.session import Session
from tests.clients.models import PlayedModel, Request, call, results, say
from tests.clients.page import run
from tests.clients.serving import serve

QUESTIONS = ("What do the notes say?", "Read the notes.", "Any sheep?")
NOTES = "Sheep like grass."
ANSWER = "The notes are about sheep."
READ = "cat notes.txt | tee copy.txt"


@dataclass(frozen=True)
class Agent:
    """A coding agent: its heading on the page, its program, and how it runs without a terminal.

    `tool` is one of its own that runs commands. `shared` is the least part of its first prompt
    that is cached when another session begins.
    """

    name: str
    api: str
    program: str
    options: tuple[str, ...]
    tool: str
    arguments: dict[str, Any]
    shared: float = 0.9

    @property
    def installed(self) -> bool:
        """Whether its program is in `PATH`."""
        return shutil.which(self.program) is not None

    def answer(self, session: Session) -> str:
        """The script of an answer: a call first, then a text; other requests are for a title."""
        if self.tool not in {tool.name for tool in session.tools}:
            return say('{"title": "Notes"}')
        if results(session):
            return "think: I see.\n" + say(ANSWER)
        return "think: Let me look.\n" + say("I look.") + call(self.tool, **self.arguments)

    def run_sessions(self, directory: Path) -> list[tuple[Request, Request]]:
        """Run three sessions in a row; the two requests of each, without those for titles.

        The prompts go through a real KV cache.
        """
        work = directory / "work"
        work.mkdir()
        (work / "notes.txt").write_text(f"{NOTES}\n")
        copy = work / "copy.txt"
        with serve(self.answer, directory / "server", cached=True) as server:
            for question in QUESTIONS:
                copy.write_text("")
                options = [option.format(question=question) for option in self.options]
                assert ANSWER in run(self.name, server.url, work, options)
                assert copy.read_text() == f"{NOTES}\n"
            return self._sessions(server.model)

    def _sessions(self, model: PlayedModel) -> list[tuple[Request, Request]]:
        main = [request for request in model.requests if self.tool in request.tools]
        assert len(main) == 2 * len(QUESTIONS)
        return list(zip(main[::2], main[1::2], strict=True))


CODEX = Agent(
    "Codex",
    "Responses",
    "codex",
    ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{question}"),
    "exec_command",
    {"cmd": READ},
)
CLAUDE_CODE = Agent(
    "Claude Code",
    "Messages",
    "claude",
    ("-p", "{question}", "--allowedTools", "Bash"),
    "Bash",
    {"command": READ},
    shared=0.4,  # a long message of its own follows the question
)
GEMINI_CLI = Agent(
    "gemini-cli",
    "Gemini",
    "gemini",
    ("--yolo", "--skip-trust", "-p", "{question}"),
    "run_shell_command",
    {"command": READ},
)
OPENCODE = Agent(
    "opencode",
    "Chat",
    "opencode",
    ("run", "--auto", "{question}"),
    "bash",
    {"command": READ, "description": "Reads the notes"},
)
PI = Agent("pi", "Chat", "pi", ("-p", "{question}"), "bash", {"command": READ})
PI_RESPONSES, PI_MESSAGES, PI_GEMINI = (
    replace(PI, api=api, options=("--model", f"shepherd-{api.lower()}/default", *PI.options))
    for api in ("Responses", "Messages", "Gemini")
)
QWEN_CODE = Agent(
    "qwen-code",
    "Chat",
    "qwen",
    ("--yolo", "-p", "{question}"),
    "run_shell_command",
    # it reads no output any more once the command has ended: it waits for `exit`, not for `close`
    {"command": f"{READ}; sleep 0.3", "is_background": False},
    shared=0.85,  # it lists the files below, and its home is one of them here
)
CLINE = Agent("cline", "Chat", "cline", ("{question}",), "run_commands", {"commands": [READ]})
CONTINUE = Agent(
    "continue", "Chat", "cn", ("--auto", "-p", "{question}"), "Bash", {"command": READ}
)
HERMES_AGENT = Agent(
    "hermes-agent", "Chat", "hermes", ("--yolo", "-z", "{question}"), "terminal", {"command": READ}
)
KILOCODE = replace(OPENCODE, name="kilocode", program="kilo")
KIMI_CODE = Agent("kimi-code", "Chat", "kimi", ("-p", "{question}"), "Bash", {"command": READ})
