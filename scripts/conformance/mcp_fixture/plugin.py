"""The tools, prompts and resources that the suite of MCP asks of a server, as a plugin."""

import asyncio
import json
from base64 import b64encode
from typing import Any, TypeAlias

import mcp_types as types
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.message import ServerMessageMetadata
from mcp_types import LOG_LEVEL_META_KEY

from tests.pictures import png

PICTURE = b64encode(png(1, 1)).decode()
SOUND = b64encode(b"RIFF$\0\0\0WAVEfmt " + bytes(20) + b"data\0\0\0\0").decode()
Content = types.ContentBlock
Result: TypeAlias = str | types.InputRequiredResult


def add(server: MCPServer[Any]) -> None:
    """Add everything; the entry point of the group `shepherd.mcp`."""
    inputs = (one_input, kept_state, several_inputs, more_inputs)
    for part in (contents, notifications, requests, *inputs, changes, prompts, resources):
        part(server)


def resource(uri: str, text: str, media_type: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=media_type, text=text)
    return types.EmbeddedResource(resource=contents)


def contents(server: MCPServer[Any]) -> None:
    """Tools that return each kind of content."""

    @server.tool()
    def test_simple_text() -> str:
        """A text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> types.ImageContent:
        """An image."""
        return types.ImageContent(data=PICTURE, mime_type="image/png")

    @server.tool()
    def test_audio_content() -> types.AudioContent:
        """A sound."""
        return types.AudioContent(data=SOUND, mime_type="audio/wav")

    @server.tool()
    def test_embedded_resource() -> types.EmbeddedResource:
        """A resource."""
        return resource("test://embedded-resource", "This is an embedded resource content.")

    @server.tool(structured_output=False)
    def test_multiple_content_types() -> list[Content]:
        """One of each."""
        data = json.dumps({"test": "data", "value": 123})
        return [
            types.TextContent(text="Multiple content types test:"),
            types.ImageContent(data=PICTURE, mime_type="image/png"),
            resource("test://mixed-content-resource", data, "application/json"),
        ]

    @server.tool()
    def test_error_handling() -> str:
        """An error."""
        raise ValueError("This tool intentionally returns an error for testing")


def notifications(server: MCPServer[Any]) -> None:
    """Tools that report while they run."""

    async def log(context: Context[Any, Any], text: str) -> None:
        entry = types.LoggingMessageNotificationParams(level="info", data=text)
        notification = types.LoggingMessageNotification(params=entry)
        await context.session.send_notification(notification, context.request_id)

    @server.tool()
    async def test_tool_with_logging(ctx: Context[Any, Any]) -> str:
        """Log three lines."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await log(ctx, text)
            await asyncio.sleep(0.05)
        return "done"

    @server.tool()
    async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
        """Report progress."""
        for share in (0, 50, 100):
            await ctx.report_progress(share, 100, f"Completed step {share} of 100")
            await asyncio.sleep(0.05)
        return "done"

    @server.tool()
    async def test_logging_tool(ctx: Context[Any, Any]) -> str:
        """Log, if the request asks for that."""
        if LOG_LEVEL_META_KEY in (ctx.request_context.meta or {}):
            await log(ctx, "a line")
        return "done"


def form(message: str, **properties: Any) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def sampling(text: str, tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=tokens)
    return types.CreateMessageRequest(params=params)


CHOICES = ["option1", "option2", "option3"]


def titled(prefix: str, last: str) -> list[dict[str, str]]:
    names = ("First", "Second", "Third")
    return [{"const": f"{prefix}{n}", "title": f"{name} {last}"} for n, name in enumerate(names, 1)]


DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {
        "type": "string",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "default": True},
}
ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": CHOICES},
    "titledSingle": {"type": "string", "oneOf": titled("value", "Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
    "titledMulti": {"type": "array", "items": {"anyOf": titled("value", "Choice")}},
}


def requests(server: MCPServer[Any]) -> None:
    """Tools that ask a client of the older protocol."""

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context[Any, Any]) -> str:
        """Ask the client's model."""
        metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
        result = await ctx.session.send_request(
            sampling(prompt), types.CreateMessageResult, metadata=metadata
        )
        assert isinstance(result.content, types.TextContent)
        return f"LLM response: {result.content.text}"

    async def asked(ctx: Context[Any, Any], message: str, properties: dict[str, Any]) -> str:
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": []}
        result = await ctx.session.elicit_form(message, schema, ctx.request_id)
        return f"action={result.action}, content={json.dumps(result.content)}"

    @server.tool()
    async def test_elicitation(message: str, ctx: Context[Any, Any]) -> str:
        """Ask the user."""
        answer = await asked(ctx, message, {"username": {"type": "string"}})
        return f"User response: {answer}"

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context[Any, Any]) -> str:
        """Ask with defaults."""
        return f"Elicitation completed: {await asked(ctx, 'Review these fields.', DEFAULTS)}"

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context[Any, Any]) -> str:
        """Ask with choices."""
        return f"Elicitation completed: {await asked(ctx, 'Choose.', ENUMS)}"


QUESTION = sampling("What is the capital of France?")
ROOTS = types.ListRootsRequest()
NAME = form("What is your name?", name={"type": "string"})


def required(state: str | None = None, **inputs: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=inputs, request_state=state)


def answered(ctx: Context[Any, Any], key: str) -> Any:
    """The answer to a request, None unless it has come and has the right kind."""
    answer = (ctx.input_responses or {}).get(key)
    if isinstance(answer, types.ElicitResult):
        return answer if answer.action == "accept" and answer.content else None
    return answer


def one_input(server: MCPServer[Any]) -> None:
    """Tools whose answer is a question to a client of the newer protocol."""

    @server.tool(structured_output=False)
    def test_input_required_result_elicitation(ctx: Context[Any, Any]) -> Result:
        """Ask for a name."""
        answer = answered(ctx, "user_name")
        if not isinstance(answer, types.ElicitResult):
            return required(user_name=NAME)
        return f"Hello, {(answer.content or {}).get('name')}!"

    @server.tool(structured_output=False)
    def test_input_required_result_sampling(ctx: Context[Any, Any]) -> Result:
        """Ask the client's model."""
        answer = answered(ctx, "capital_question")
        return str(answer.content) if answer else required(capital_question=QUESTION)

    @server.tool(structured_output=False)
    def test_input_required_result_list_roots(ctx: Context[Any, Any]) -> Result:
        """Ask for the client's directories."""
        answer = answered(ctx, "client_roots")
        return str(answer.roots) if answer else required(client_roots=ROOTS)


def kept_state(server: MCPServer[Any]) -> None:
    """Tools that keep a state between two requests of the client."""

    @server.tool(structured_output=False)
    def test_input_required_result_request_state(ctx: Context[Any, Any]) -> Result:
        """Ask, and keep a state."""
        if ctx.request_state == "confirming" and answered(ctx, "confirm"):
            return "state-ok"
        return required("confirming", confirm=form("Please confirm", ok={"type": "boolean"}))

    @server.tool(structured_output=False)
    def test_input_required_result_tampered_state(ctx: Context[Any, Any]) -> Result:
        """Ask, and keep a state that can't be forged."""
        return test_input_required_result_request_state(ctx)

    @server.tool(structured_output=False)
    def test_input_required_result_multi_round(ctx: Context[Any, Any]) -> Result:
        """Ask twice."""
        if ctx.request_state == "second" and answered(ctx, "step2"):
            return "done"
        if ctx.request_state == "first" and answered(ctx, "step1"):
            return required("second", step2=form("Step 2: Which color?", color={"type": "string"}))
        return required("first", step1=form("Step 1: What name?", name={"type": "string"}))


def several_inputs(server: MCPServer[Any]) -> None:
    """Tools that ask for several things."""

    @server.tool(structured_output=False)
    def test_input_required_result_multiple_inputs(ctx: Context[Any, Any]) -> Result:
        """Ask for three things."""
        inputs = {"user_name": NAME, "greeting": sampling("Generate a greeting", 50)}
        asked: dict[str, Any] = {**inputs, "client_roots": ROOTS}
        if all(answered(ctx, key) for key in asked):
            return "done"
        return required("several", **asked)

    @server.tool(structured_output=False)
    def test_input_required_result_capabilities(ctx: Context[Any, Any]) -> Result:
        """Ask for what the client can."""
        can = ctx.client_capabilities or types.ClientCapabilities()
        asked: dict[str, Any] = {}
        if can.sampling is not None:
            asked["question"] = QUESTION
        if can.elicitation is not None:
            asked["name"] = NAME
        return "done" if ctx.input_responses or not asked else required(**asked)


def more_inputs(server: MCPServer[Any]) -> None:
    """What else can ask, and what refuses to."""

    @server.tool(structured_output=False)
    def test_missing_capability(ctx: Context[Any, Any]) -> Result:
        """Refuse clients without sampling."""
        if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
            missing: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "needs sampling", missing)
        return "done"

    @server.tool(structured_output=False)
    async def test_streaming_elicitation(ctx: Context[Any, Any]) -> Result:
        """Report progress, then ask."""
        await ctx.report_progress(1, 2, "half way")
        return "done" if answered(ctx, "user_name") else required(user_name=NAME)

    @server.prompt()
    def test_input_required_result_prompt(ctx: Context[Any, Any]) -> Any:
        """A prompt that asks."""
        answer = answered(ctx, "user_context")
        if not isinstance(answer, types.ElicitResult):
            text = {"type": "string"}
            return required(user_context=form("What context should it use?", context=text))
        return f"Context: {(answer.content or {}).get('context')}"


def changes(server: MCPServer[Any]) -> None:
    """Tools that change what the server offers."""

    @server.tool()
    async def test_trigger_tool_change(ctx: Context[Any, Any]) -> str:
        """Tell that the tools are others."""
        await ctx.notify_tools_changed()
        return "done"

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context[Any, Any]) -> str:
        """Tell that the prompts are others."""
        await ctx.notify_prompts_changed()
        return "done"


def prompts(server: MCPServer[Any]) -> None:
    """Prompts of each kind, and completion of their arguments."""

    @server.prompt()
    def test_simple_prompt() -> str:
        """A prompt."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A prompt with arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> Any:  # noqa: N803 - the suite's name
        """A prompt with a resource."""
        attached = resource(resourceUri, "Embedded resource content for testing.")
        text = types.TextContent(text="Please process the embedded resource above.")
        return [UserMessage(attached), UserMessage(text)]

    @server.prompt()
    def test_prompt_with_image() -> Any:
        """A prompt with an image."""
        picture = types.ImageContent(data=PICTURE, mime_type="image/png")
        text = types.TextContent(text="Please analyze the image above.")
        return [UserMessage(picture), UserMessage(text)]

    @server.completion()
    async def complete(
        _ref: object, argument: types.CompletionArgument, _context: object
    ) -> types.Completion:
        words = [word for word in ("paris", "park", "party") if word.startswith(argument.value)]
        return types.Completion(values=words, total=len(words), has_more=False)


def resources(server: MCPServer[Any]) -> None:
    """Resources of each kind."""

    @server.resource("test://static-text", description="A text.", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", description="An image.", mime_type="image/png")
    def static_binary() -> bytes:
        return png(1, 1)

    @server.resource("test://watched-resource", description="A text.", mime_type="text/plain")
    def watched() -> str:
        return "Watched resource content"

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        """A record."""
        data = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        return json.dumps(data)
