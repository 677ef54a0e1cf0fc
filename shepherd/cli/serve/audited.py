"""The tools and commands of a shared conversation; calls of tools are noted in the audit."""

from shepherd.conversation.commands.table import named_command, output_of
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.shared.approvals import ClientApprover
from shepherd.conversation.shared.shareable import SessionActions
from shepherd.server.access.audit import AuditLog
from shepherd.server.access.audited import AuditedTools
from shepherd.server.record import CallOrigin
from shepherd.tools.permissions.approval import Approver
from shepherd.turn import ToolExecutor

PATH = "/request"


def audited_actions(conversation: Conversation, audit: AuditLog) -> SessionActions:
    """The actions of a shared session over `conversation`."""

    def tool_runner(approver: Approver) -> ToolExecutor:
        def origin() -> CallOrigin:
            return _origin(conversation.slot.model_name, approver)

        return AuditedTools(conversation.tool_runner(approver), audit, origin=origin)

    async def command(text: str) -> str:
        known, argument = named_command(text)
        return await output_of(known, conversation, argument)

    return SessionActions(tool_runner, command)


def _origin(model: str, approver: Approver) -> CallOrigin:
    """The running request; the part of a client's identity behind its key is a secret."""
    request = approver.request if isinstance(approver, ClientApprover) else None
    if request is None:
        return CallOrigin(path=PATH, model=model)
    key = request.client.rpartition("\n")[0]
    return CallOrigin(request.id, PATH, key, model)
