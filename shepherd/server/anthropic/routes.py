"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

import re
from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from shepherd.backends.base import ModelInfo
from shepherd.server.anthropic.answers import PING, MessageAnswer
from shepherd.server.anthropic.errors import AnthropicErrors
from shepherd.server.anthropic.models import HEADER, models_router
from shepherd.server.anthropic.requests import CountRequest, MessagesRequest, PromptRequest
from shepherd.server.anthropic.thoughts import Thoughts
from shepherd.server.anthropic.to_session import session_of
from shepherd.server.api import Api
from shepherd.server.errors import ApiError
from shepherd.server.exchange import Exchange
from shepherd.server.generation import NO_TOKENS
from shepherd.server.responses import JsonResponse, StreamFormat
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire.fields import MAX_TOKENS
from shepherd.session import Session

MESSAGES_PATH = "/v1/messages"
BATCHES_PATH = f"{MESSAGES_PATH}/batches"
COUNT_PATH = f"{MESSAGES_PATH}/count_tokens"
EVENTS = StreamFormat("text/event-stream", PING)


def messages_router(context: ServerContext) -> APIRouter:
    """The routes of messages."""
    router = APIRouter()
    builder = _Builder(context)

    @router.post(MESSAGES_PATH)
    async def create_message(
        body: Annotated[MessagesRequest, context.bodies.of(MessagesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation in Anthropic's form, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not
        fit is a 400 either way. Hanging up stops the work.
        """
        model = await serving.lease(body.model)
        exchange = await serving.translate(body.messages, builder.exchange, body, model.info)
        return await serving.respond(model, exchange, EVENTS if body.stream else None)

    @router.post(COUNT_PATH)
    async def count_message_tokens(
        body: Annotated[CountRequest, context.bodies.of(CountRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> JsonResponse:
        """How many tokens the prompt of such a request takes.

        Exact for a model in this process, an estimate for providers.
        """
        model = await serving.lease(body.model)
        exchange = await serving.translate(body.messages, builder.prompt, body, model.info)
        return JsonResponse({"input_tokens": await serving.count_tokens(model, exchange)})

    @router.api_route(BATCHES_PATH, methods=["GET", "POST"], include_in_schema=False)
    @router.api_route(
        f"{BATCHES_PATH}/{{path:path}}", methods=["GET", "POST", "DELETE"], include_in_schema=False
    )
    async def refuse_batches() -> Response:
        """Refuse batches; clients do not try again after a 404."""
        message = f"Message batches are not served; send each message to {MESSAGES_PATH}."
        raise ApiError(404, message, "not_found")

    return router


class _Builder:
    """Makes exchanges of requests."""

    def __init__(self, context: ServerContext) -> None:
        self._settings = context.settings
        self._thoughts = Thoughts(context.seal)

    def exchange(self, body: MessagesRequest, model: ModelInfo) -> Exchange:
        """The exchange of a request; raises ApiError."""
        session = self._session(body, model)
        choice, thinking = body.tool_choice, body.thinking
        answer = MessageAnswer(
            model=body.model or model.id,
            thoughts=self._thoughts,
            reasoning=session.thinking,
            hidden=thinking is not None and thinking.display == "omitted",
            one_call=choice is not None and choice.disable_parallel_tool_use is True,
            limit=body.max_tokens,
            edits=bool(body.context_management),
        )
        return Exchange(
            session,
            answer,
            max_tokens=min(body.max_tokens, MAX_TOKENS) or NO_TOKENS,
            tools_allowed=choice is None or choice.type != "none",
        )

    def prompt(self, body: PromptRequest, model: ModelInfo) -> Exchange:
        """The exchange of a request that is only counted; raises ApiError."""
        return Exchange(self._session(body, model), MessageAnswer(model.id, self._thoughts))

    def _session(self, body: PromptRequest, model: ModelInfo) -> Session:
        return session_of(body, self._thoughts, model, thinking=self._settings.thinking)


ANTHROPIC = Api(
    name="anthropic",
    paths=(MESSAGES_PATH,),
    errors=AnthropicErrors(),
    routers=lambda context: (models_router(context), messages_router(context)),
    pattern=re.compile(r"/v1/(models|files|skills|complete)(/.*)?"),
    header=HEADER,
)
