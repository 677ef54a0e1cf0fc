"""`/v1/tools`: the server's own tools for clients that run them, when switched on.

`/tools` has the same ones in the shape of llama.cpp's server.

`/approvals`: clients whose keys may approve see the open questions of the agent and answer them.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.output.repair import loads
from shepherd.conversation.shared.updates import RESUME_HEADER
from shepherd.messages import JsonObject, ToolCall, ToolSpec
from shepherd.server import responses
from shepherd.server.access.audit import AuditedTools, AuditLog
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, to_api_error
from shepherd.server.record import record_of
from shepherd.server.settings import ServerContext
from shepherd.server.shared.follow import DecisionBody, watch_log
from shepherd.server.wire.answers import new_id
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import AnyTool
from shepherd.version import __version__

PREFIX = "/v1/tools"
LLAMACPP_PATH = "/tools"
_EXECUTE = "execute"
_ELSEWHERE = {"x-tool-cwd", "x-tool-runtime"}
"""Headers by which llama.cpp's server runs a tool in another directory, container or machine."""
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

    name: Annotated[str, Field(min_length=1)]
    """The tool's name."""
    tool_call_id: str | None = None
    """Comes back in the answer; made up if missing."""
    arguments: Annotated[JsonObject, BeforeValidator(_object)] = Field(
        default_factory=dict[str, Any]
    )
    """The arguments, an object or its JSON text."""


class ToolArguments(RootModel[JsonObject]):
    """The body of `POST /v1/tools/{name}`: the tool's arguments."""


class LlamaCall(RequestModel):
    """The body of `POST /tools`."""

    tool: Annotated[str, Field(min_length=1)]
    """The tool's name."""
    params: JsonObject = Field(default_factory=dict[str, Any])
    """The arguments."""
    stream: bool = False
    """Not served: a result comes as a whole."""


def tools_router(tools: ToolRunner, context: ServerContext, audit: AuditLog) -> APIRouter:
    """The routes that list and run tools; `audit` gets a line for each call."""
    router, bodies = APIRouter(prefix=PREFIX), context.bodies
    audited = AuditedTools(tools, audit)

    async def run(request: Request, call: ToolCall) -> JsonObject:
        result = await responses.while_connected(request.receive, audited.run(call))
        return {"success": result.ok, "content": result.content}

    @router.get("")
    async def list_tools() -> responses.JsonResponse:
        """The tools, with a JSON schema of each one's arguments. Only with `--server-tools`."""
        specs = [
            {"name": s.name, "description": s.description, "parameters": s.parameters}
            for s in _direct_specs(tools.registry)
        ]
        return responses.JsonResponse({"tools": specs})

    @router.post(f"/{_EXECUTE}")
    async def execute_tool(
        request: Request, body: Annotated[ExecuteRequest, bodies.of(ExecuteRequest)]
    ) -> responses.JsonResponse:
        """Run a tool under the permission rules; calls that need approval are denied.

        A failed or refused call is an answer with `success` false, not an HTTP error. Only with
        `--server-tools`.
        """
        call_id = body.tool_call_id or new_id("call_", 16)
        tool = tools.registry.get(body.name)
        if tool is not None and tool.calls_models:
            message = f"{body.name!r} calls a model, and only a model of the agent can use it."
            raise ApiError(400, message, "invalid_value", "name")
        call = ToolCall(call_id, body.name, body.arguments)
        return responses.JsonResponse({"tool_call_id": call.id, **await run(request, call)})

    @router.get("/openapi.json")
    async def describe_tools() -> responses.JsonResponse:
        """The tools as an OpenAPI document, for clients such as Open WebUI.

        Its paths are below `/v1/tools`. Only with `--server-tools`.
        """
        return responses.JsonResponse(openapi_document(_direct_specs(tools.registry)))

    @router.post("/{name}")
    async def execute_named_tool(
        request: Request, name: str, body: Annotated[ToolArguments, bodies.of(ToolArguments)]
    ) -> responses.JsonResponse:
        """Run the tool of that name with the body as its arguments, under the permission rules.

        As with `execute`, a failed or refused call is an answer. Only with `--server-tools`.
        """
        tool = tools.registry.get(name)
        if tool is None or tool.calls_models:
            raise ApiError(404, f"There is no tool {name!r}.", "not_found", "name")
        call = ToolCall(new_id("call_", 16), name, body.root)
        return responses.JsonResponse(await run(request, call))

    return router


def llama_tools_router(tools: ToolRunner, context: ServerContext, audit: AuditLog) -> APIRouter:
    """The same in the shape of llama.cpp's server."""
    router, audited = APIRouter(), AuditedTools(tools, audit)

    @router.get(LLAMACPP_PATH)
    async def list_llama_tools() -> responses.JsonResponse:
        """The tools in the shape of llama.cpp's server. Only with `--server-tools`."""
        named = _llama_names(tools.registry).items()
        return responses.JsonResponse([_llama_tool(name, tool) for name, tool in named])

    @router.post(LLAMACPP_PATH)
    async def run_llama_tool(
        request: Request, body: Annotated[LlamaCall, context.bodies.of(LlamaCall)]
    ) -> responses.JsonResponse:
        """Run a tool as llama.cpp's server does, under the permission rules.

        As with `execute`, a failed or refused call is an answer. Only with `--server-tools`.
        """
        for header in _ELSEWHERE.intersection(request.headers):  # never runs in another place
            raise ApiError(400, f"{header}: tools run in the server's directory.", "unsupported")
        tool = _llama_names(tools.registry).get(body.tool)
        if tool is None:
            raise ApiError(404, f"There is no tool {body.tool!r}.", "not_found", "tool")
        if body.stream:
            raise ApiError(404, f"No result of {body.tool!r} is streamed.", "not_found", "stream")
        call = ToolCall(new_id("call_", 16), tool.name, body.params)
        result = await responses.while_connected(request.receive, audited.run(call))
        field = "plain_text_response" if result.ok else "error"
        return responses.JsonResponse({field: result.content})

    return router


def _llama_names(registry: ToolRegistry) -> dict[str, AnyTool]:
    """The tools by llama.cpp's names: `SERVER_TOOL` of an MCP server, unless that is another's."""
    named: dict[str, AnyTool] = {}
    for tool in registry:
        name = tool.name.replace("__", "_", 1)
        is_taken = name in named or registry.get(name) is not None
        if not tool.calls_models:
            named[tool.name if is_taken else name] = tool
    return named


def _llama_tool(name: str, tool: AnyTool) -> JsonObject:
    spec = tool.spec()
    function = {"name": name, "description": spec.description, "parameters": spec.parameters}
    return {
        "tool": name,
        "display_name": _title(tool.name),
        "type": "mcp" if name != tool.name else "server",
        "permissions": {"write": not tool.traits.reads_only},
        "uses_cwd": False,
        "definition": {"type": "function", "function": function},
    }


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
        # a tool called `execute` has no path: there is the route that runs all tools
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
    """The operation that runs a tool."""
    result = {"schema": {"$ref": "#/components/schemas/Result"}}
    return {
        "operationId": tool.name,
        "summary": _title(tool.name),
        "description": tool.description,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": tool.parameters}},
        },
        "responses": {
            "200": {"description": "The result.", "content": {"application/json": result}}
        },
    }


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def approvals_router(approvals: ClientApprovals, context: ServerContext) -> APIRouter:
    """The routes over the questions of the agent."""
    router = APIRouter(prefix="/approvals")

    @router.get("")
    async def list_approvals() -> responses.JsonResponse:
        """The calls of the agent that wait for approval, with the update id of this state.

        Only with `--use-tools` and keys, for the scope `approve`. A client that reads the list at
        least every 10 seconds counts as connected.
        """
        approvals.note_reader()
        open_questions = [question.to_json() for question in approvals.questions()]
        log = approvals.log
        return responses.JsonResponse(
            {"approvals": open_questions, "update_id": log.id_of(log.last)}
        )

    @router.get("/updates", response_class=Response, responses=responses.STREAMED)
    async def read_approval_updates(request: Request) -> Response:
        """The questions and decisions as events; `Last-Event-ID` or `?after=` resumes after an id.

        Only with `--use-tools` and keys, for the scope `approve`.
        """
        after = request.headers.get(RESUME_HEADER) or request.query_params.get("after", "")

        @asynccontextmanager
        async def open_frames() -> AsyncGenerator[responses.Frames]:
            with approvals.listening():
                yield watch_log(approvals.log, {"version": __version__}, after)

        return responses.EventStreamResponse(open_frames, to_api_error, context.settings.keepalive)

    @router.post("/{id}")
    async def decide_agent_approval(
        id: str, request: Request, body: Annotated[DecisionBody, context.bodies.of(DecisionBody)]
    ) -> responses.JsonResponse:
        """Answer a question of the agent; 404 if it does not wait any more.

        Only with `--use-tools` and keys, for the scope `approve`. The first answer counts.
        """
        by = record_of(request.scope).owner
        approvals.decide(id, body.approval(by=by))
        return responses.JsonResponse({"id": id, "decision": body.decision})

    return router
