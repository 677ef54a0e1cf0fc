"""A shared conversation whose calls of tools are noted in the audit."""

from functools import partial

from shepherd.backends.base import Backend
from shepherd.conversation.commands.table import named_command
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.shared.approvals import ClientApprover
from shepherd.knowledge.knowledge import Knowledge
from shepherd.messages import Message
from shepherd.server.access.audit import AuditLog
from shepherd.server.access.audited import AuditedTools
from shepherd.server.access.origin import CallOrigin
from shepherd.session import Session
from shepherd.tools.permissions.approval import Approver
from shepherd.transcript import SessionSummary
from shepherd.turn import ToolExecutor, TurnLimits

PATH = "/request"


class AuditedConversation:
    """A `SharedConversation` over another one."""

    def __init__(self, conversation: Conversation, audit: AuditLog) -> None:
        self._conversation = conversation
        self._audit = audit

    @property
    def session(self) -> Session:
        """That of the conversation."""
        return self._conversation.session

    @property
    def limits(self) -> TurnLimits:
        """Those of the conversation."""
        return self._conversation.limits

    @property
    def knowledge(self) -> Knowledge:
        """That of the conversation."""
        return self._conversation.knowledge

    def tool_runner(self, approver: Approver) -> ToolExecutor:
        """The runner of the conversation, which notes its calls."""
        runner = self._conversation.tool_runner(approver)
        return AuditedTools(runner, self._audit, origin=partial(self._origin, approver))

    async def prompt(self, text: Message) -> Message:
        """That of the conversation."""
        return await self._conversation.prompt(text)

    def clear(self) -> None:
        """Forget all messages."""
        self._conversation.clear()

    async def command(self, text: str) -> str:
        """The output of a command."""
        command, argument = named_command(text)
        return await command.run(self._conversation, argument)

    def saved_sessions(self, limit: int) -> list[SessionSummary]:
        """Those of the conversation's directory."""
        return self._conversation.saved_sessions(limit)

    def resume(self, id: str) -> None:
        """Continue with a saved session."""
        self._conversation.resume(id)

    async def reload(self) -> Backend:
        """Open the model again."""
        return await self._conversation.reload()

    async def before_turn(self) -> None:
        """Offer what the MCP servers offer by now."""
        await self._conversation.before_turn()

    def _origin(self, approver: Approver) -> CallOrigin:
        """The running request; the part of a client's identity behind its key is a secret."""
        request = approver.request if isinstance(approver, ClientApprover) else None
        model = self._conversation.slot.model_name
        if request is None:
            return CallOrigin(path=PATH, model=model)
        key = request.client.rpartition("\n")[0]
        return CallOrigin(request.id, PATH, key, model)
