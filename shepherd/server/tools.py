"""`/v1/tools`: the server's own tools for clients that run them, when switched on."""

import secrets
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, RootModel
from starlette.requests import Request

from shepherd.backends.output.repair import loads
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server.access.audit import AuditedTools, AuditLog
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError
from shepherd.server.responses import JsonResponse, while_connected
from shepherd.server.settings import ServerContext
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.version import __version__

PREFIX = "/v1/tools"
_EXECUTE = "execute"
_RESULT: JsonObject = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean", "description": "False if the call failed or was denied."},
        "content": {"type": "string", "description": "The result, or the reason of the failure."},
    },
    "required": ["success", "content"],
}


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


class ToolArguments(RootModel[JsonObject]):
    """The body of `POST /v1/tools/{name}`: the tool's arguments."""


def tools_router(tools: ToolRunner, context: ServerContext, audit: AuditLog) -> APIRouter:
    """The routes that list and run tools; `audit` gets a line for each call."""
    router, bodies = APIRouter(prefix=PREFIX), context.bodies
    audited = AuditedTools(tools, audit)

    async def run(request: Request, call: ToolCall) -> JsonObject:
        result = await while_connected(request.receive, audited.run(call))
        return {"success": result.ok, "content": result.content}

    @router.get("")
    async def list_tools() -> JsonResponse:
        """The tools, with a JSON schema of each one's arguments. Only with `--server-tools`."""
        specs = [
            {"name": s.name, "description": s.description, "parameters": s.parameters}
            for s in _direct_specs(tools.registry)
        ]
        return JsonResponse({"tools": specs})

    @router.post(f"/{_EXECUTE}")
    async def execute_tool(
        request: Request, body: Annotated[ExecuteRequest, bodies.of(ExecuteRequest)]
    ) -> JsonResponse:
        """Run a tool under the permission rules; calls that need approval are denied.

        A failed or refused call is an answer with `success` false, not an HTTP error. Only with
        `--server-tools`.
        """
        call_id = body.tool_call_id or _new_id()
        tool = tools.registry.get(body.name)
        if tool is not None and tool.calls_models:
            message = f"{body.name!r} calls a model, and only a model of the agent can use it."
            raise ApiError(400, message, "invalid_value", "name")
        call = ToolCall(call_id, body.name, body.arguments)
        return JsonResponse({"tool_call_id": call.id, **await run(request, call)})

    @router.get("/openapi.json")
    async def describe_tools() -> JsonResponse:
        """The tools as an OpenAPI document, for clients such as Open WebUI.

        Its paths are below `/v1/tools`. Only with `--server-tools`.
        """
        return JsonResponse(openapi_document(_direct_specs(tools.registry)))

    @router.post("/{name}")
    async def execute_named_tool(
        request: Request, name: str, body: Annotated[ToolArguments, bodies.of(ToolArguments)]
    ) -> JsonResponse:
        """Run the tool of that name with the body as its arguments, under the permission rules.

        As with `execute`, a failed or refused call is an answer. Only with `--server-tools`.
        """
        tool = tools.registry.get(name)
        if tool is None or tool.calls_models:
            raise ApiError(404, f"There is no tool {name!r}.", "not_found", "name")
        call = ToolCall(_new_id(), name, body.root)
        return JsonResponse(await run(request, call))

    return router


def _direct_specs(registry: ToolRegistry) -> list[ToolSpec]:
    """The tools that clients can run: those that call a model work in a conversation only."""
    return [tool.spec() for tool in registry if not tool.calls_models]


def openapi_document(tools: Iterable[ToolSpec]) -> JsonObject:
    """The OpenAPI document with one operation for each tool.

    Clients put its paths after the server's address in it, or after the one in their settings.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shepherd's tools", "version": __version__},
        "servers": [{"url": PREFIX}],
        "paths": {
            f"/{tool.name}": {"post": _operation(tool)} for tool in tools if tool.name != _EXECUTE
        },
        "components": {
            "schemas": {"Result": _RESULT},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(tool: ToolSpec) -> JsonObject:
    result = {"schema": {"$ref": "#/components/schemas/Result"}}
    return {
        "operationId": tool.name,
        "summary": tool.name.replace("_", " ").capitalize(),
        "description": tool.description,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": tool.parameters}},
        },
        "responses": {
            "200": {"description": "The result.", "content": {"application/json": result}}
        },
    }


def _new_id() -> str:
    return f"call_{secrets.token_hex(8)}"
