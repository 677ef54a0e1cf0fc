"""`GET /v1/tools` and `POST /v1/tools/execute`: the server's own tools, when switched on."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BeforeValidator, Field
from starlette.requests import Request

from shepherd.backends.output.calls.repair import loads
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.body import BodyReader, RequestModel
from shepherd.server.responses import JsonResponse, while_connected
from shepherd.server.settings import ServerSettings
from shepherd.tools.runner import ToolRunner


def _object(value: object) -> object:
    """Parse JSON text; null means no arguments."""
    if isinstance(value, str):
        value = loads(value or "{}")
    return {} if value is None else value


class ExecuteRequest(RequestModel):
    """The body of `POST /v1/tools/execute`."""

    name: Annotated[str, Field(min_length=1, description="The tool's name.")]
    tool_call_id: Annotated[
        str | None, Field(description="Comes back in the answer; made up if missing.")
    ] = None
    arguments: Annotated[
        JsonObject,
        BeforeValidator(_object),
        Field(description="The arguments, an object or its JSON text."),
    ] = Field(default_factory=dict[str, Any])


def tools_router(tools: ToolRunner, settings: ServerSettings) -> APIRouter:
    """The routes that list and run tools."""
    router = APIRouter(prefix="/v1/tools")
    bodies = BodyReader(settings.max_body_bytes)

    @router.get("")
    async def list_tools() -> JsonResponse:
        """The tools, with a JSON schema of each one's arguments. Only with `--server-tools`."""
        specs = [
            {"name": s.name, "description": s.description, "parameters": s.parameters}
            for s in tools.registry.specs()
        ]
        return JsonResponse({"tools": specs})

    @router.post("/execute")
    async def execute_tool(request: Request) -> JsonResponse:
        """Run a tool under the permission rules; calls that need approval are denied.

        A failed or refused call is an answer with `success` false, not an HTTP error. Only with
        `--server-tools`.
        """
        body = await bodies.read(request, ExecuteRequest)
        call_id = body.tool_call_id or f"call_{secrets.token_hex(8)}"
        call = ToolCall(call_id, body.name, body.arguments)
        result = await while_connected(request.receive, tools.run(call))
        data = {"tool_call_id": call.id, "success": result.ok, "content": result.content}
        return JsonResponse(data)

    return router
