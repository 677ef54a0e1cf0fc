"""The exchange of a chat request."""

from shepherd.backends.base import ModelInfo
from shepherd.server.exchange import Exchange
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import (
    check_continuation,
    check_images,
    check_template_values,
    choice_count,
    session_from_request,
    token_limit,
)
from shepherd.server.openai.tools import check_tools
from shepherd.server.settings import ServerSettings


def chat_exchange(body: ChatRequest, settings: ServerSettings, model: ModelInfo) -> Exchange:
    """The exchange of a chat request; raises ApiError."""
    check_images(body, model)
    check_tools(body.tools, model)
    check_continuation(body, model)
    check_template_values(body, model)
    session = session_from_request(body, thinking=settings.thinking)
    answer = ChatAnswer.to_request(body, session, model)
    return Exchange(
        session,
        answer,
        choice_count(body, settings.max_choices),
        token_limit(body, settings.max_tokens),
        opened=answer.attach,
        progress=answer.progress if body.stream and body.return_progress else None,
        tools_allowed=body.tool_choice != "none",
    )
