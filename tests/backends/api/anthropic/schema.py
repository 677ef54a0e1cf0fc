"""Requests and events checked against the official SDK's own types, unknown fields refused."""

import warnings
from functools import cache
from typing import Any, cast

from anthropic.types import (
    ImageBlockParam,
    RawMessageStreamEvent,
    RedactedThinkingBlockParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
    message_create_params,
)
from anthropic.types.beta import message_create_params as beta
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import SchemaValidator

from shepherd.backends.api.adapter import ApiRequest
from shepherd.messages import JsonObject

_BLOCKS: dict[str, Any] = {
    "text": TextBlockParam,
    "image": ImageBlockParam,
    "thinking": ThinkingBlockParam,
    "redacted_thinking": RedactedThinkingBlockParam,
    "tool_use": ToolUseBlockParam,
    "tool_result": ToolResultBlockParam,
}

_SAMPLING = ("temperature", "top_p", "top_k")


def check_request(request: ApiRequest) -> JsonObject:
    """The body; raises what pydantic raises if the SDK could not have sent it.

    Sampling parameters are gone from the SDK's types with the API's newest version, so they are
    allowed where an older one is asked for.
    """
    assert request.path == "/v1/messages"
    assert request.body is not None
    body = dict(request.body)
    if request.headers["anthropic-version"] == "2023-06-01":
        body = {k: v for k, v in body.items() if k not in _SAMPLING}
    preview = "anthropic-beta" in request.headers
    kind: Any = beta.MessageCreateParamsStreaming if preview else None
    _validator(kind or message_create_params.MessageCreateParamsStreaming).validate_python([body])
    for block in (b for m in body["messages"] for b in m["content"]):
        _validator(_BLOCKS[block["type"]]).validate_python([block])
    for tool in body.get("tools", []):
        _validator(ToolParam).validate_python([tool])
    return request.body


def check_event(event: JsonObject) -> JsonObject:
    """The event; raises what pydantic raises if it is none of the API's."""
    if event["type"] not in ("ping", "error"):
        _events().validate_python(event)
    return event


@cache
def _events() -> TypeAdapter[Any]:
    return TypeAdapter(RawMessageStreamEvent)


@cache
def _validator(kind: Any) -> SchemaValidator:
    """A strict validator of a list of `kind`; the SDK's iterables are checked like lists."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some types of the SDK say that they allow more
        many: Any = list.__class_getitem__(kind)
        adapter: TypeAdapter[Any] = TypeAdapter(many, config=ConfigDict(extra="forbid"))
    return SchemaValidator(_eager(adapter.core_schema))


def _eager(node: Any) -> Any:
    if isinstance(node, list | tuple):
        return type(cast(Any, node))(_eager(part) for part in cast(list[Any], node))
    if not isinstance(node, dict):
        return node
    schema = {key: _eager(value) for key, value in cast(JsonObject, node).items()}
    return schema | ({"type": "list"} if schema.get("type") == "generator" else {})
