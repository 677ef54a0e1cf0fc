"""A missing answer is told from a no: what waits for it is kept as a patch, not dropped."""

from unittest.mock import AsyncMock, Mock

import pytest
from acp import RequestError
from acp.schema import DeniedOutcome, RequestPermissionResponse
from mcp.types import ElicitResult

from shepherd.cli.acp.approvals import EditorApprover
from shepherd.cli.mcpserver.work import ElicitingApprover
from shepherd.messages import ToolCall
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.tools.permissions.approval import ApprovalRequest, Approver, Choice

REQUEST = ApprovalRequest(ToolCall("1", "write_file", {}), ())
NO = RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


def editor(**asked: object) -> EditorApprover:
    """An editor whose answer to a request for permission is `asked`."""
    client = Mock(request_permission=AsyncMock(**asked))
    updates = Mock(session_id="1", cwd="/", **{"call_key.return_value": "1"})
    return EditorApprover(client, updates, AsyncMock(return_value=None), has_forms=False)


def form(answer: ElicitResult | None) -> ElicitingApprover:
    """A client of MCP with this answer to a form."""
    return ElicitingApprover(AsyncMock(return_value=answer))


@pytest.mark.parametrize(
    ("approver", "unanswered"),
    [
        (editor(side_effect=RequestError(-32603, "closed")), True),
        (editor(side_effect=ConnectionError), True),
        (editor(return_value=NO), False),
        (form(None), True),
        (form(ElicitResult(action="cancel")), True),
        (form(ElicitResult(action="decline")), False),
        (ClientApprovals(1), True),
    ],
)
async def test_who_is_gone_says_neither_yes_nor_no(approver: Approver, *, unanswered: bool) -> None:
    approval = await approver.ask(REQUEST)
    assert (approval.choice, approval.unanswered) == (Choice.DENY, unanswered)
