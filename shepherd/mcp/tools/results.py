"""Results of servers as text and images for the model."""

import binascii
import json
import os
from base64 import b64decode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import mcp_types as types

from shepherd.errors import ImageError
from shepherd.images import MAX_IMAGES, Image, decode_image
from shepherd.tools.base import ToolResult
from shepherd.tools.text import cap_text, new_spill_file, plain_text

Block = types.ContentBlock | types.TextResourceContents | types.BlobResourceContents


def tool_result(result: types.CallToolResult, limit: int, spill_dir: Path) -> ToolResult:
    """The result of a call, in about `limit` bytes; the rest of it goes to files."""
    text, images = content(result.content, spill_dir)
    structured = result.structured_content
    if structured is not None and not _repeats(result.content, structured):
        text = "\n".join(filter(None, [text, json.dumps(structured, ensure_ascii=False)]))
    capped = cap_text(text or "(no output)", limit, spill_dir)
    if result.is_error:
        return ToolResult(f"Error: {capped}", ok=False, images=images)
    return ToolResult(capped, images=images)


def content(blocks: Iterable[Block], spill_dir: Path) -> tuple[str, tuple[Image, ...]]:
    """The text and the images of content; other data is kept in files, which the text names."""
    texts: list[str] = []
    images: list[Image] = []
    for block in blocks:
        if isinstance(block, types.ImageContent) and len(images) < MAX_IMAGES:
            try:
                images.append(decode_image(block.data))
                continue
            except ImageError as error:
                texts.append(f"[an image that can't be used: {error}]")
        else:
            texts.append(_text(block, spill_dir))
    return "\n".join(texts), tuple(images)


def _text(block: Block, spill_dir: Path) -> str:
    match block:
        case types.TextContent():
            return plain_text(block.text)
        case types.EmbeddedResource():
            return _text(block.resource, spill_dir)
        case types.TextResourceContents():
            return f"[resource {block.uri}]\n{plain_text(block.text)}"
        case types.BlobResourceContents():
            return _kept(f"resource {block.uri}", block.blob, block.mime_type, spill_dir)
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return plain_text(f"[link to the resource {block.uri} ({block.name}){about}]")
        case types.ImageContent():
            return _kept("image", block.data, block.mime_type, spill_dir)
        case types.AudioContent():
            return _kept("audio", block.data, block.mime_type, spill_dir)
    return "[content of an unknown type]"


def _kept(noun: str, data: str, media_type: str | None, spill_dir: Path) -> str:
    """A line about binary data, which is kept in a file."""
    try:
        raw = b64decode(data)
    except (binascii.Error, ValueError):
        return f"[{noun}: not valid base64]"
    descriptor, path = new_spill_file(spill_dir)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    return f"[{noun}, {media_type or 'binary'}, {len(raw)} bytes, kept in {path}]"


def _repeats(blocks: Sequence[types.ContentBlock], structured: object) -> bool:
    """Whether the text of a result is the structured content once more, as servers do."""
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    for candidate in (*texts, "".join(texts)):
        try:
            value: object = json.loads(candidate)
        except (ValueError, RecursionError):
            value = candidate
        if value == structured or _is_only_value(structured, value):
            return True
    return False


def _is_only_value(structured: object, value: object) -> bool:
    """Whether the structured content only wraps the text: `{"result": ...}`, `{"content": ...}`."""
    if not isinstance(structured, dict):
        return False
    values = [*cast(dict[str, object], structured).values()]
    return len(values) == 1 and values[0] == value
