"""Commands about the conversation as it is: context, skills, background commands, the mode."""

from typing import TYPE_CHECKING

from shepherd.config.section import ApproveMode
from shepherd.conversation import context_use
from shepherd.conversation.commands.command import Command, Lines, Note, Row
from shepherd.conversation.conversation import Conversation
from shepherd.errors import InvalidRequestError, ToolError
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import RuleUse
from shepherd.tools.shell.execute import command_list
from shepherd.tools.text import one_line, pluralize

if TYPE_CHECKING:
    from shepherd.mcp.hub import Entry

TOOLS = "tools"
OUTPUT_BYTES = 16_384
KEEP, KILL, OUTPUT = "keep", "kill", "output"
JOBS = f"[{OUTPUT} ID] [{KEEP} ID] [{KILL} ID]"
MCP_ACTIONS = ("show", "reconnect", "disable", "enable")
NO_SKILLS = (
    "There are no skills. A skill is a folder with a SKILL.md in ~/.config/shepherd/skills, or in "
    ".agents/skills of the project."
)
NO_SERVERS = "There are no MCP servers; `shepherd mcp add NAME -- PROGRAM` adds one."

MODE_TEXT = {
    ApproveMode.ASK: "A call that no rule allows needs your approval.",
    ApproveMode.EDITS: "Changes to files in the working directory run without asking.",
    ApproveMode.REVIEW: "Nothing is asked; at the end of a turn you see all that it has changed.",
    ApproveMode.PLAN: "Nothing is changed; it ends with a plan that you accept.",
    ApproveMode.AUTO: "Changes to files in the working directory and commands in the sandbox run "
    "without asking.",
    ApproveMode.ALL: "Everything that no rule denies runs without asking.",
    ApproveMode.NONE: "A call that would need approval is refused.",
}
MODES = [mode.value for mode in ApproveMode]


async def set_mode(conversation: Conversation, mode: ApproveMode) -> str:
    """Change the mode; returns a sentence if it works otherwise than it says, else ""."""
    policy = conversation.policy
    policy.mode = mode
    if mode is not ApproveMode.AUTO:
        return ""
    problem = await conversation.sandbox.problem_of_auto()
    policy.has_sandbox = not problem
    return problem


async def _context(conversation: Conversation, argument: str) -> Lines:
    backend = await conversation.backend()
    if argument not in ("", TOOLS):
        raise InvalidRequestError(f"/context takes {TOOLS} or nothing.")
    if argument:
        parts = await context_use.measure_tools(conversation.session, backend)
        rows = context_use.part_rows(parts, backend.info.context_size)
        return [Row(*row) for row in rows] or ["The model has no tools."]
    use = await context_use.measure_context(conversation.session, backend)
    cache = context_use.cache_rows(backend.status.cache_tiers)
    return [Row(*row) for row in (*context_use.context_rows(use), *cache)]


async def _skills(conversation: Conversation, _argument: str) -> Lines:
    knowledge = conversation.knowledge
    rows = [
        Row(s.name, one_line(s.description), "(yours)" if s.of_user else "(the project's)")
        for s in knowledge.skills
    ]
    problems = [Note(one_line(problem)) for problem in knowledge.problems]
    return [*(rows or [NO_SKILLS]), *problems]


async def _jobs(conversation: Conversation, argument: str) -> Lines:
    commands = conversation.background
    action, _, number = argument.partition(" ")
    if not action:
        return [command_list(commands)]
    if action not in (KEEP, KILL, OUTPUT) or not number.strip():
        raise InvalidRequestError(f"/jobs takes {OUTPUT} ID, {KEEP} ID, {KILL} ID, or nothing.")
    try:
        command = commands.find(number)
    except ToolError as error:
        text = str(error)  # made for the model: a sentence without its capital and its full stop
        raise InvalidRequestError(f"{text[:1].upper()}{text[1:]}.") from error
    if action == KILL:
        await commands.kill(command, by_user=True)
    if action == KEEP:
        text = f"{command.title}: {await commands.keep(command)}"
        conversation.additions.note(f"[Background {text}.]")
        return [text]
    head = f"{command.title}: {command.report}"
    text = command.log.tail(OUTPUT_BYTES).text.rstrip("\n") or "(no output)"
    return [head, text] if action == OUTPUT else [head]


async def _mcp(conversation: Conversation, argument: str) -> Lines:
    hub = conversation.servers
    if hub is None:
        return [NO_SERVERS]
    action, _, name = argument.partition(" ")
    if not action:
        return [_server_row(entry) for entry in hub.entries]
    if action not in MCP_ACTIONS or not name.strip():
        raise InvalidRequestError(f"/mcp takes {', '.join(MCP_ACTIONS)} and a server's name.")
    entry = hub.find(name.strip())
    if action == "disable":
        await hub.stop(entry)
    elif action != "show":  # both `reconnect` and `enable` start it
        await hub.restart(entry, conversation.approver)
    from shepherd.mcp.prompts import offer_lines  # imports the SDK

    log = f"log: {hub.launcher.log_file(entry.server)}"
    return [one_line(line) for line in (*offer_lines(entry), log)]


def _server_row(entry: "Entry") -> Row:
    """`web  ready, 3 tools, 1 prompt`."""
    counts = list[str]()
    catalogue = entry.catalogue
    if catalogue is not None:  # the server has said what it offers
        lists = {
            "tool": catalogue.tools,
            "prompt": catalogue.prompts,
            "resource": catalogue.resources,
        }
        counts = [pluralize(len(items), noun) for noun, items in lists.items() if items]
    parts = [entry.state, *counts, entry.problem]
    return Row(entry.name, one_line(", ".join(part for part in parts if part)))


REMOVE = "remove"


def permission_lines(policy: PermissionPolicy, argument: str) -> Lines:
    """The rules that the user or the project has set; with `remove NUMBER`, one fewer.

    Raises InvalidRequestError for another argument, and ConfigError if the store is broken.
    """
    action, _, number = argument.partition(" ")
    rules = policy.sources()
    if action == REMOVE:
        removable = list(policy.removable())
        place = int(number) if number.isascii() and number.isdecimal() and len(number) < 7 else 0
        if not 0 < place <= len(removable):
            raise InvalidRequestError(
                f"There is no rule {number or 'without a number'} to remove; rules of settings "
                "are changed in their file."
            )
        rule = removable[place - 1]
        policy.remove(rule)
        return [f"Removed: {rule}"]
    if action:
        raise InvalidRequestError(f"The rules are listed, or removed by {REMOVE} NUMBER.")
    uses = policy.uses.all()
    rows = [
        Row(
            str(number) if number <= len(policy.removable()) else "-",
            f"{rule} ({one_line(f'in {rule.scope}') if rule.scope else 'everywhere'}, {source}, "
            f"{uses.get(rule, RuleUse(rule)).describe()})",
        )
        for number, (rule, source) in enumerate(rules, start=1)
    ]
    return rows or ["There are no rules but the defaults."]


async def _permissions(conversation: Conversation, argument: str) -> Lines:
    return permission_lines(conversation.policy, argument)


async def _approve(conversation: Conversation, argument: str) -> Lines:
    if argument and argument not in MODES:
        raise InvalidRequestError(f"/approve takes {', '.join(MODES)}.")
    mode = ApproveMode(argument) if argument else conversation.policy.mode
    problem = await set_mode(conversation, mode)
    return [f"approve: {mode.value}. {problem or MODE_TEXT[mode]}"]


PRESENT_COMMANDS = (
    Command("context", f"[{TOOLS}]", "what fills the context; with tools, what each takes",
            _context, lambda: (TOOLS,), beside=True),
    Command("skills", "", "the skills that the model can read", _skills, beside=True),
    Command("jobs", JOBS, "commands in the background; their output, keep changes, or end one",
            _jobs, by_words=True, approves=lambda text: text.startswith(KEEP), beside=True),
    Command("mcp", f"[{'|'.join(MCP_ACTIONS)} NAME]", "the MCP servers, their state and tools",
            _mcp, by_words=True, approves=lambda text: bool(text) and not text.startswith("show")),
    Command("permissions", f"[{REMOVE} NUMBER]", "the rules that you or the project have set",
            _permissions, lambda: (REMOVE,), approves=bool),
    Command("approve", "ask|edits|review|plan|auto|all|none", "what runs without asking", _approve,
            lambda: MODES, approves=bool),
)  # fmt: skip
