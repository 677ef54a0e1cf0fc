"""The items of a conversation: checked, in the form in which they are stored and listed."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Struct
from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)

from shepherd.messages import JsonObject
from shepherd.server.body import BodyReader, RequestModel
from shepherd.server.errors import ApiError, invalid, invalid_body, unsupported
from shepherd.server.openai_responses.defined import DEFINED, result_text
from shepherd.server.openai_responses.requests import ResponsesRequest, Status
from shepherd.server.openai_responses.store import ResponseStore
from shepherd.server.wire.answers import new_id
from shepherd.server.wire.content import Content, arguments_object, content_of

MAX_ITEMS = 10_000

Identifier: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]


class SentItem(RequestModel):
    """An item that a client has sent whole; it gets an id if it has none."""

    id: Identifier | None = None


class MessageItem(SentItem):
    """A message of any role."""

    role: Literal["user", "system", "developer", "assistant"]
    content: Annotated[Content, PlainValidator(content_of)]


class CallItem(SentItem):
    """A call of a tool."""

    call_id: Identifier
    name: Identifier
    namespace: str | None = None


class FunctionCallItem(CallItem):
    """A call of a function; its arguments come as JSON text or as an object."""

    arguments: Annotated[JsonObject, BeforeValidator(arguments_object)]


class CustomCallItem(CallItem):
    """A call of a custom tool."""

    input: str


class DefinedCallItem(SentItem):
    """A call of a tool in `DEFINED`, whose arguments stand in a field that depends on the tool."""

    model_config = ConfigDict(extra="allow")
    call_id: Identifier
    type: str


def _output(value: object) -> Content:
    """The content of a result; that of a shell is a list of outcomes."""
    return content_of(result_text(value))


class CallOutputItem(SentItem):
    """The result of a call of any kind; one of a patch may have its status alone."""

    call_id: Annotated[Identifier, Field(validation_alias=AliasChoices("call_id", "id"))]
    output: Annotated[Content, PlainValidator(_output)]
    status: str | None = None


class ReasoningPart(RequestModel):
    """A piece of reasoning."""

    text: str


class ReasoningItem(SentItem):
    """Reasoning before an answer."""

    summary: list[ReasoningPart] = Field(default_factory=list[ReasoningPart])
    content: list[ReasoningPart] | None = None
    encrypted_content: str | None = None


class CompactionItem(SentItem):
    """The signed summary of a conversation, in its place."""

    encrypted_content: str


class ForeignItem(SentItem):
    """What a tool of another server did: it is kept, and no model sees it."""


class ReferenceItem(RequestModel):
    """An item of a stored response, by its id."""

    id: Identifier


AnyCallItem: TypeAlias = FunctionCallItem | CustomCallItem | DefinedCallItem
SignedItem: TypeAlias = ReasoningItem | CompactionItem
ItemModel: TypeAlias = (
    MessageItem | AnyCallItem | CallOutputItem | SignedItem | ForeignItem | ReferenceItem
)
_MODELS: Mapping[str, tuple[type[ItemModel], str]] = {
    "message": (MessageItem, "msg_"),
    "function_call": (FunctionCallItem, "fc_"),
    "custom_tool_call": (CustomCallItem, "ctc_"),
    "function_call_output": (CallOutputItem, "fco_"),
    "custom_tool_call_output": (CallOutputItem, "ctco_"),
    "reasoning": (ReasoningItem, "rs_"),
    "compaction": (CompactionItem, "cmp_"),
    "item_reference": (ReferenceItem, ""),
    **{f"{kind}_call": (DefinedCallItem, f"{kind}_") for kind in DEFINED},
    **{f"{kind}_call_output": (CallOutputItem, f"{kind}o_") for kind in DEFINED},
}
"""The items by their types, and how the ids of new ones begin; a reference has no id of its own."""

_FOREIGN = re.compile("[a-z_]+_(call|output|list_tools|approval_request|approval_response)")
"""Types of items that are about tools which only other servers run."""


class Item(Struct, frozen=True):
    """An item at the place `param` of the request: its stored form, and its content.

    `stored`: it comes from the server's own store.
    """

    data: JsonObject
    model: ItemModel
    param: str
    stored: bool = False

    @property
    def id(self) -> str:
        return str(self.data["id"])


def input_items(value: object) -> list[Item]:
    """The items of a request's `input`; raises ApiError that names the place of a mistake."""
    if value is None:
        return []
    if isinstance(value, str):
        return [to_item({"role": "user", "content": value}, "input")]
    if not isinstance(value, list):
        raise ApiError(400, "input must be a string or a list of items", "invalid_value", "input")
    values = cast(list[object], value)
    if len(values) > MAX_ITEMS:
        raise invalid("input", f"must be at most {MAX_ITEMS:,} items")
    return [to_item(item, f"input.{index}") for index, item in enumerate(values)]


def to_item(value: object, param: str, *, stored: bool = False) -> Item:
    """The item in a JSON value at `param`; raises ApiError."""
    if not isinstance(value, dict):
        raise ApiError(400, f"{param} must be an object", "invalid_value", param)
    fields = cast(JsonObject, value)
    kind: object = fields.get("type")
    if kind is None:  # clients may leave out the types of messages and of references
        is_reference = "id" in fields and "role" not in fields
        kind = "item_reference" if is_reference else "message"
    if kind == "apply_patch_call_output" and not fields.get("output"):
        fields = {**fields, "output": str(fields.get("status", "completed"))}
    is_foreign = isinstance(kind, str) and len(kind) < 64 and _FOREIGN.fullmatch(kind)
    if not isinstance(kind, str) or not (kind in _MODELS or is_foreign):
        message = f"{param}: items of type {str(kind)[:40]!r} are not supported"
        raise unsupported(f"{param}.type", message)
    model, id_prefix = _MODELS.get(kind, (ForeignItem, "item_"))
    try:
        parsed = model.model_validate(fields)
    except ValidationError as error:
        raise at_param(invalid_body(error), param) from error
    own_id = parsed.id
    if isinstance(parsed, CallOutputItem) and own_id == parsed.call_id:
        own_id = None  # that of the call, by which clients of `local_shell` name it
    data: JsonObject = {"id": own_id or new_id(id_prefix, 32), "type": kind}
    return Item(data | _own_fields(fields, parsed), parsed, param, stored)


def at_param(error: ApiError, param: str) -> ApiError:
    """An error of a part of the request, with the place of that part.

    `name: is missing` of the part at `tools.1` becomes `tools.1.name: is missing`.
    """
    where = f"{param}.{error.param}" if error.param else param
    reason = f": {error.message}"
    if error.param and error.message.startswith(error.param):
        reason = error.message.removeprefix(error.param)
    return ApiError(400, f"{where}{reason}", error.code, where)


def _own_fields(fields: JsonObject, model: ItemModel) -> JsonObject:
    """The fields of an item as OpenAI lists it, beside its id and its type."""
    match model:
        case ReferenceItem():
            return {}
        case MessageItem(role=role):
            text_type = "output_text" if role == "assistant" else "input_text"
            parts = _parts(fields["content"], text_type)
            return {"role": role, "status": "completed", "content": parts}
        case FunctionCallItem():
            sent = fields.get("arguments")  # as it was sent: `model` has it repaired
            text = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
            return _call(model, "arguments", text) | {"status": "completed"}
        case CustomCallItem():
            return _call(model, "input", model.input)
        case CallOutputItem():
            sent = fields["output"]
            is_text = isinstance(result_text(sent), str)  # outcomes of a shell are one, too
            output = sent if is_text else _parts(sent, "input_text")
            status = model.status or "completed"
            return {"call_id": model.call_id, "output": output, "status": status}
        case ReasoningItem():
            return _reasoning(model)
        case DefinedCallItem() | CompactionItem() | ForeignItem():
            return {key: value for key, value in fields.items() if key not in ("id", "type")}


def _call(model: CallItem, key: str, text: str) -> JsonObject:
    """The fields of a call of either kind; `key` is the name of what the model has written."""
    data: JsonObject = {"call_id": model.call_id, "name": model.name, key: text}
    return data | ({"namespace": model.namespace} if model.namespace else {})


def _reasoning(model: ReasoningItem) -> JsonObject:
    """The fields of reasoning; content and signature may be missing, and a summary is a list."""
    summary = [{"type": "summary_text", "text": part.text} for part in model.summary]
    data: JsonObject = {"summary": summary}
    if model.content is not None:
        data["content"] = [{"type": "reasoning_text", "text": part.text} for part in model.content]
    if model.encrypted_content is not None:
        data["encrypted_content"] = model.encrypted_content
    return data


def _parts(content: object, text_type: str) -> list[JsonObject]:
    """The parts of content that `content_of` has taken, with the types of this API."""
    parts = [content] if isinstance(content, str) else cast(Sequence[Any], content or ())
    return [_part(part, text_type) for part in parts]


def _part(part: Any, text_type: str) -> JsonObject:
    """An image or text of this API for a part that may be written as in the chat API."""
    fields = cast(JsonObject, part) if isinstance(part, dict) else {"text": part}
    if "image_url" in fields:
        image = fields["image_url"]
        url = cast(JsonObject, image)["url"] if isinstance(image, dict) else image
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    text = str(fields.get("text", fields.get("refusal", "")))
    data: JsonObject = {"type": text_type, "text": text}
    # an answer's text always has these in OpenAI's schema
    return data | ({"annotations": [], "logprobs": []} if text_type == "output_text" else {})


PREVIOUS = "previous_response_id"


class History(Struct, frozen=True):
    """The items of a conversation, and those of them that the request itself has sent."""

    items: Sequence[Item] = ()
    own: Sequence[Item] = ()


class HistoryReader(Struct, frozen=True):
    """Reads conversations; one of more than `max_bytes` of stored items is refused."""

    store: ResponseStore
    bodies: BodyReader
    max_bytes: int

    async def read(self, owner: str, request: ResponsesRequest) -> History:
        """The conversation of a request; raises ApiError."""
        sent: object = request.input
        parts = cast(list[object], sent) if isinstance(sent, list) else ()
        own = await self.bodies.translate(parts, input_items, cast(object, sent))
        own = await self._resolved(owner, own)
        previous = request.previous_response_id
        earlier = [] if previous is None else await self.earlier(owner, previous)
        if len(earlier) + len(own) > MAX_ITEMS:
            raise invalid("input", f"the conversation has more than {MAX_ITEMS:,} items")
        if not (earlier or own):
            message = "input: at least one item is needed"
            raise ApiError(400, message, "missing_required_parameter", "input")
        return History([*earlier, *own], own)

    async def earlier(self, owner: str, id: str) -> list[Item]:
        """The items of a stored response and of all before it; raises ApiError."""
        response = await self.store.load(owner, id)
        if response is None:
            raise _missing_response(id)
        if not Status(response.body["status"]).is_final:
            message = f"The response {id!r} is not complete yet; wait for it, or cancel it."
            raise ApiError(400, message, "invalid_value", PREVIOUS)
        chain = await self.store.load_chain(owner, id, self.max_bytes)
        if chain.missing:
            raise _missing_response(chain.missing)
        if chain.bytes > self.max_bytes:
            message = (
                f"The conversation takes more than the {self.max_bytes:,} bytes that this server "
                "takes at once (server.max_body_bytes): begin a new one."
            )
            raise ApiError(413, message, "request_too_large", PREVIOUS)
        return await self.bodies.translate(chain.items, _stored_items, chain.items)

    async def _resolved(self, owner: str, items: Sequence[Item]) -> list[Item]:
        """The items, with stored ones in place of references to them; raises ApiError."""
        ids = {item.id for item in items if isinstance(item.model, ReferenceItem)}
        stored = await self.store.find_items(owner, ids) if ids else {}
        resolved: list[Item] = []
        for item in items:
            if not isinstance(item.model, ReferenceItem):
                resolved.append(item)
            elif item.id in stored:
                resolved.append(to_item(stored[item.id], item.param, stored=True))
            else:
                message = f"{item.param}: there is no item with the id {item.id!r}"
                raise ApiError(404, message, "not_found", item.param)
        return resolved


def _stored_items(values: Sequence[JsonObject]) -> list[Item]:
    """The items of earlier responses; a mistake in one is one of `previous_response_id`."""
    return [to_item(value, PREVIOUS, stored=True) for value in values]


def _missing_response(id: str) -> ApiError:
    """The error for a conversation of which a response was deleted, or is another key's."""
    message = f"The previous response {id[:256]!r} is not stored here."
    return ApiError(404, message, "previous_response_not_found", PREVIOUS)
