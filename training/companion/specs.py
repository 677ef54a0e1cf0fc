"""Tools of the dialogues as Shepherd offers them: with a description and a schema."""

from msgspec.structs import replace

from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.tools.registry import builtin_tools
from training import lists
from training.dialogue import Message as Said
from training.toolbox import Tool

BUILTIN = {tool.spec().name: tool.spec() for tool in builtin_tools()}


def spec(tool: Tool) -> ToolSpec:
    """The tool as Shepherd sends it to a model."""
    if not tool.kind:
        return _client_spec(tool)
    own = BUILTIN[tool.kind]
    if not tool.renamed and tool.name == own.name:
        return own
    return replace(own, name=tool.name, parameters=_renamed(own.parameters, tool))


def _client_spec(tool: Tool) -> ToolSpec:
    numeric = lists.words("numeric arguments")
    properties = {
        arg.rstrip("?"): {"type": "integer" if arg in numeric else "string"} for arg in tool.args
    }
    words = tool.name.replace("_", " ").capitalize()
    parameters: JsonObject = {"type": "object", "properties": properties}
    if properties:
        parameters["required"] = list(properties)
    return ToolSpec(tool.name, f"{words}.", parameters)


def _renamed(parameters: JsonObject, tool: Tool) -> JsonObject:
    """The schema of the arguments that the tool has under other names."""
    new = tool.renamed
    properties = {new[k]: v for k, v in parameters["properties"].items() if k in new}
    required = [new[k] for k in parameters.get("required", []) if k in new]
    schema: JsonObject = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {})


def messages(said: list[Said], tools: list[ToolSpec]) -> list[Message]:
    """The messages of a dialogue as a session holds them."""
    schemas = {tool.name: tool.parameters["properties"] for tool in tools}
    shaped: list[Message] = []
    call: ToolCall | None = None
    for number, message in enumerate(said):
        if message.role == "tool" and call is not None:
            shaped.append(Message.tool(call, message.content))
            continue
        if message.call is not None:
            arguments = typed(message.call.args, schemas[message.call.name])
            call = ToolCall(f"call{number}", message.call.name, arguments)
            shaped.append(Message.assistant("", tool_calls=(call,)))
        else:
            shaped.append(Message(Role(message.role), message.content))
    return shaped


def typed(arguments: JsonObject, properties: JsonObject) -> JsonObject:
    """The arguments as the schema wants them: digits in a text stay a text."""
    texts = {name for name, schema in properties.items() if schema.get("type") == "string"}
    return {k: str(v) if k in texts else v for k, v in arguments.items()}
