"""An Ollama request as a `Session`."""

from collections.abc import Sequence

from msgspec.structs import replace

from shepherd.backends.base import ModelInfo
from shepherd.messages import Message, Role, ToolCall
from shepherd.sampling import Sampling
from shepherd.server.errors import invalid, unsupported
from shepherd.server.ollama.requests import ChatRequest, GenerateRequest, OllamaRequest, WireMessage
from shepherd.server.wire.content import CallHistory
from shepherd.server.wire.fields import check_images, effort_named, logprob_count
from shepherd.session import Infill, OutputFormat, RawPrompt, Session

_INSTRUCTIONS = ("system", "developer")
_SHOWING = ("user", "tool")


def chat_session(request: ChatRequest, model: ModelInfo, *, thinking: bool) -> Session:
    """The conversation of a chat request; `thinking` is the default.

    If the assistant has the last word, the answer continues it where the model can. Raises
    ApiError.
    """
    for index, message in enumerate(request.messages):
        where = f"messages.{index}.images"
        check_images(message.images, model, where)
        if message.images and message.role not in _SHOWING:
            raise invalid(where, "images go with messages of the user and of tools")
    system = [m.content for m in request.messages if m.role in _INSTRUCTIONS and m.content]
    messages = _conversation(request.messages)
    return Session(
        system_message="\n\n".join(system),
        messages=messages,
        tools=[tool.function.to_spec() for tool in request.tools],
        sampling=sampling(request),
        thinking=thinking if request.think is None else bool(request.think),
        thinking_effort=effort_named(request.think if isinstance(request.think, str) else None),
        output_format=output_format(request),
        continues=model.raw_prompts and _is_begun(messages),
    )


def generate_session(request: GenerateRequest, model: ModelInfo, *, thinking: bool) -> Session:
    """The session of a generate request; raises ApiError."""
    _check_generate(request)
    check_images(request.images, model, "images")
    session = Session(
        sampling=sampling(request),
        thinking=thinking if request.think is None else bool(request.think),
        thinking_effort=effort_named(request.think if isinstance(request.think, str) else None),
        output_format=output_format(request),
    )
    prompt = request.prompt or ""
    if request.suffix:
        return replace(session, raw_prompt=Infill(prompt, request.suffix))
    if request.raw:
        return replace(session, raw_prompt=RawPrompt((prompt,)))
    messages = [Message.user(prompt, request.images)]
    return replace(session, system_message=request.system or "", messages=messages)


def sampling(request: OllamaRequest) -> Sampling:
    """The sampling parameters; raises ApiError where two do not fit together."""
    logprobs = logprob_count(requested=request.logprobs, top=request.top_logprobs)
    options = request.parameters
    parameters = options.to_sampling()
    if options.seed is not None and options.seed < 0:  # Ollama's word for a random one
        parameters = replace(parameters, seed=None)
    return replace(parameters, logprobs=logprobs)


def output_format(request: OllamaRequest) -> OutputFormat | None:
    """The format of the answer, None for free text."""
    return None if request.format is None else OutputFormat(request.format)


def _check_generate(request: GenerateRequest) -> None:
    """Raise ApiError for what is not served, and for fields that exclude each other."""
    if request.template:
        raise unsupported("template", "template is not served; use raw with a whole prompt.")
    if request.context:
        raise unsupported("context", "context is not served; send the conversation to /api/chat.")
    for name in ("width", "height", "steps"):
        if getattr(request, name):
            raise unsupported(name, f"{name} is not served: this server makes no images.")
    whole = "raw" if request.raw else "suffix" if request.suffix else ""
    if whole and request.system:
        raise invalid("system", f"not with {whole}")
    if whole and request.images:
        raise invalid("images", f"not with {whole}")


def _is_begun(messages: Sequence[Message]) -> bool:
    last = messages[-1] if messages else None
    return last is not None and last.role is Role.ASSISTANT and not last.tool_calls


def _conversation(wire: Sequence[WireMessage]) -> list[Message]:
    """The messages without instructions; results find their calls by id, name or order."""
    history = CallHistory()
    messages: list[Message] = []
    for message in wire:
        content = message.content or ""
        match message.role:
            case "system" | "developer":
                continue
            case "user":
                messages.append(Message.user(content, message.images))
            case "assistant":
                calls = tuple(
                    ToolCall(c.id or history.next_id(), c.function.name, c.function.arguments)
                    for c in message.tool_calls
                )
                history.add(calls)
                messages.append(Message.assistant(content, message.thinking or "", calls))
            case "tool":
                call_id, name = history.answered(
                    message.tool_call_id or "", message.tool_name or ""
                )
                images = message.images
                messages.append(
                    Message(Role.TOOL, content, tool_call_id=call_id, name=name, images=images)
                )
    return messages
