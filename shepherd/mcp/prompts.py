"""The offer of servers in words; prompts as `/server:prompt`, and resources as `@server:uri`."""

import asyncio
import re
import shlex
from pathlib import Path

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace
from pydantic import ValidationError

from shepherd.errors import InvalidRequestError, ToolError
from shepherd.images import Image
from shepherd.mcp.hub import Entry, ServerHub
from shepherd.mcp.servers import ServerState
from shepherd.mcp.tool import content, tool_names
from shepherd.messages import Message
from shepherd.tools.text import cap_text, plain_text

_COMMAND = re.compile(
    r"/(?P<server>[a-z][a-z0-9_-]*):(?P<prompt>\S+)(?:\s+(?P<arguments>.*))?", re.DOTALL
)
_MENTION = re.compile(r"(?:^|(?<=\s))@([a-z][a-z0-9_-]*):(\S+)")
_PUNCTUATION = ".,;!?)]}'\""
MAX_RESOURCES = 10
"""The maximum number of resources in one message."""
_MAX_LISTED = 50


async def with_servers(message: Message, hub: ServerHub, limit: int, spill_dir: Path) -> Message:
    """The message with the prompt of a server in place of its name, and with named resources.

    A resource has at most `limit` bytes; the rest goes to a file. Raises InvalidRequestError if
    the server can't give what the message names.
    """
    await hub.settled()
    message = await _with_prompt(message, hub, spill_dir)
    # each once, without the comma or the bracket of the sentence around it
    named = dict.fromkeys(
        (name, uri.rstrip(_PUNCTUATION))
        for name, uri in _MENTION.findall(message.content)
        if name in hub.names
    )
    parts, images = [message.content], [*message.images]
    if len(named) > MAX_RESOURCES:
        raise InvalidRequestError(f"A message can name at most {MAX_RESOURCES} resources.")
    for name, uri in named:
        text, pictures = await _resource(hub, name, uri, spill_dir)
        capped = await asyncio.to_thread(cap_text, text, limit, spill_dir)
        parts.append(f'<file path="{name}:{uri}">\n{capped}\n</file>')
        images += pictures
    return replace(message, content="\n\n".join(parts), images=tuple(images))


def completions(hub: ServerHub) -> tuple[list[tuple[str, str]], list[str]]:
    """The prompts that the servers offer now, with descriptions, and the resources."""
    prompts: list[tuple[str, str]] = []
    resources: list[str] = []
    for entry in hub.entries:
        if entry.catalogue is None:
            continue
        offered = entry.catalogue.prompts
        prompts += [(f"{entry.name}:{prompt.name}", _usage(prompt)) for prompt in offered]
        resources += [f"{entry.name}:{resource.uri}" for resource in entry.catalogue.resources]
    return prompts, resources


def offer_lines(entry: Entry) -> list[str]:
    """The state of a server and its offer, in lines."""
    offer = entry.catalogue
    if entry.state is not ServerState.READY or offer is None:
        return [": ".join(filter(None, [entry.name, entry.state, entry.problem]))]
    names = tool_names(entry.name, [tool.name for tool in offer.tools])
    lines = [f"{entry.name}: ready"]
    for noun, texts in (
        ("tools", names),
        ("prompts", [f"/{entry.name}:{prompt.name}" for prompt in offer.prompts]),
        ("resources", [f"@{entry.name}:{resource.uri}" for resource in offer.resources]),
    ):
        more = f" and {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
        if texts:
            lines.append(f"{noun}: {', '.join(texts[:_MAX_LISTED])}{more}")
    return lines


async def _with_prompt(message: Message, hub: ServerHub, spill_dir: Path) -> Message:
    """The message, or the prompt that a message such as "/server:prompt arguments" names."""
    match = _COMMAND.fullmatch(message.content.strip())
    if match is None or match["server"] not in hub.names:
        return message
    name, prompt_name = match["server"], match["prompt"]
    client = await _client(hub, name)
    catalogue = hub.find(name).catalogue
    prompts = {prompt.name: prompt for prompt in catalogue.prompts} if catalogue else {}
    prompt = prompts.get(prompt_name)
    if prompt is None:
        offered = ", ".join(f"/{name}:{offered}" for offered in prompts) or "none"
        raise InvalidRequestError(f"The MCP server {name} has no prompt {prompt_name}: {offered}.")
    arguments = _arguments(name, prompt, match["arguments"] or "")
    try:
        result = await client.get_prompt(prompt_name, arguments)
    except (MCPError, ValidationError, RuntimeError, OSError) as error:
        raise InvalidRequestError(f"/{name}:{prompt_name}: {plain_text(str(error))}") from error
    texts: list[str] = []
    images: list[Image] = [*message.images]
    for part in result.messages:
        text, pictures = content([part.content], spill_dir)
        texts.append(f"Assistant: {text}" if part.role == "assistant" else text)
        images += pictures
    return replace(message, content="\n\n".join(texts), images=tuple(images))


def _arguments(server: str, prompt: types.Prompt, text: str) -> dict[str, str]:
    """The arguments: `NAME=VALUE`, or values in their order; the last one takes the rest.

    `lang=de my long text` gives {"lang": "de", "text": "my long text"} to a prompt with these two.
    """
    arguments = prompt.arguments or []
    names = [argument.name for argument in arguments]
    try:
        words = shlex.split(text)
    except ValueError:  # a quotation mark without the other, as in "don't"
        words = text.split()
    values: dict[str, str] = {}
    unnamed: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            values[name] = value
        else:
            unnamed.append(word)
    *first_names, last_name = [name for name in names if name not in values] or [""]
    values |= dict(zip(first_names, unnamed, strict=False))
    remaining = unnamed[len(first_names) :]
    if last_name and remaining:
        values[last_name] = " ".join(remaining)
    missing = [a.name for a in arguments if a.required and a.name not in values]
    if missing:
        usage = _usage(prompt)
        raise InvalidRequestError(f"/{server}:{prompt.name} needs {', '.join(missing)}: {usage}")
    return values


def _usage(prompt: types.Prompt) -> str:
    """The prompt's arguments, optional ones in brackets, and the beginning of its description."""
    words = [a.name if a.required else f"[{a.name}]" for a in prompt.arguments or []]
    about = " ".join(plain_text(prompt.description or "").split())[:100]
    return " — ".join(filter(None, [" ".join(words), about]))


async def _resource(
    hub: ServerHub, name: str, uri: str, spill_dir: Path
) -> tuple[str, tuple[Image, ...]]:
    """The text and the images of a resource; raises InvalidRequestError."""
    client = await _client(hub, name)
    try:
        result = await client.read_resource(uri)
    except (MCPError, ValidationError, RuntimeError, OSError) as error:
        raise InvalidRequestError(f"@{name}:{uri}: {plain_text(str(error))}") from error
    return content(result.contents, spill_dir)


async def _client(hub: ServerHub, name: str) -> Client:
    """The client of a server that is ready; raises InvalidRequestError with a sentence."""
    entry = hub.find(name)
    if entry.connection is None:
        raise InvalidRequestError(f"The MCP server {name} is {entry.state}.")
    try:
        return await entry.connection.client()
    except ToolError as error:  # its text is for the model, and begins in lower case
        raise InvalidRequestError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
