"""Commands about the conversation as it is: context, skills, background commands, the mode."""

from collections.abc import Sequence

from shepherd.config.choices import ApproveMode
from shepherd.conversation.commands.base import Command
from shepherd.conversation.context_use import ContextPart, measure_context, measure_tools
from shepherd.conversation.conversation import Conversation
from shepherd.errors import InvalidRequestError
from shepherd.tools.shell.check import command_list
from shepherd.tools.text import one_line

TOOLS = "tools"
OUTPUT_BYTES = 16_384
KILL, OUTPUT = "kill", "output"


async def set_mode(conversation: Conversation, mode: ApproveMode) -> str:
    """Change the mode; returns a sentence if it works otherwise than it says, else ""."""
    policy = conversation.policy
    policy.mode = mode
    if mode is not ApproveMode.AUTO:
        return ""
    problem = await conversation.sandbox.problem_of_auto()
    policy.has_sandbox = not problem
    return problem


async def _context(conversation: Conversation, argument: str) -> str:
    backend = await conversation.backend()
    if argument not in ("", TOOLS):
        raise InvalidRequestError(f"/context takes {TOOLS} or nothing.")
    if argument:
        return _token_lines(await measure_tools(conversation.session, backend))
    use = await measure_context(conversation.session, backend)
    size = f" of {use.size}" if use.size else ""
    about = "" if use.error is None else "about "
    return f"{about}{use.used}{size} tokens:\n{_token_lines(use.parts)}"


def _token_lines(parts: Sequence[ContextPart]) -> str:
    return "\n".join(f"- {part.name}: {part.tokens}" for part in parts)


async def _skills(conversation: Conversation, _argument: str) -> str:
    skills = conversation.knowledge.skills
    lines = [f"- {skill.name}: {one_line(skill.description)}" for skill in skills]
    return "\n".join(lines) or "There are no skills."


async def _jobs(conversation: Conversation, argument: str) -> str:
    commands = conversation.background
    action, _, number = argument.partition(" ")
    if not action:
        return command_list(commands)
    if action not in (KILL, OUTPUT) or not number.strip():
        raise InvalidRequestError(f"/jobs takes {OUTPUT} ID, {KILL} ID, or nothing.")
    command = commands.find(number)
    if action == KILL:
        await commands.kill(command, by_user=True)
    head = f"{command.title}: {command.state}"
    text = command.log.tail(OUTPUT_BYTES).text.rstrip("\n") or "(no output)"
    return f"{head}\n{text}" if action == OUTPUT else head


async def _mcp(conversation: Conversation, _argument: str) -> str:
    entries = conversation.servers.entries if conversation.servers is not None else []
    lines = [f"- {e.name}: {e.current}{f' ({e.problem})' if e.problem else ''}" for e in entries]
    return "\n".join(lines) or "There are no MCP servers."


async def _approve(conversation: Conversation, argument: str) -> str:
    modes = [mode.value for mode in ApproveMode]
    if argument and argument not in modes:
        raise InvalidRequestError(f"/approve takes one of {', '.join(modes)}.")
    problem = await set_mode(conversation, ApproveMode(argument)) if argument else ""
    return " ".join(part for part in (f"approve: {conversation.policy.mode}.", problem) if part)


PRESENT_COMMANDS = (
    Command("context", "What fills the context", _context, f"[{TOOLS}]"),
    Command("skills", "The skills that the model can read", _skills),
    Command("jobs", "Commands in the background", _jobs, f"[{OUTPUT} ID] [{KILL} ID]"),
    Command("mcp", "The MCP servers and their state", _mcp),
    Command("approve", "The approval mode", _approve, "[MODE]", approves=bool),
)
