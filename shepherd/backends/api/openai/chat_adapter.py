"""Chat completions, of OpenAI and of compatible servers: the requests."""

from collections.abc import Collection
from typing import ClassVar

from msgspec.structs import replace

from shepherd.backends.api import history, model_list, parameters, stream
from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelEntry, ModelTraits
from shepherd.backends.api.openai import chat_decoder, common, dialects
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject, Message, Role, ToolCall, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session

_FIXED = ("temperature", "top_p", "penalty_freq", "penalty_present")
"""The parameters that OpenAI's reasoning models do not accept."""

_SAMPLERS = {"typical_p": "typ_p"}
"""llama.cpp's names for samplers, if they differ from ours."""

_ELSEWHERE = ("logit_bias", "logprobs")


def chat_sampling(sampling: Sampling, model: str, dialect: dialects.Dialect) -> JsonObject:
    """The fields of a request; raises InvalidRequestError for a parameter that the server lacks.

    OpenAI's reasoning models have fixed sampling: temperature and similar parameters are left out.
    """
    if dialects.reasons(model):
        sampling = replace(sampling, **dict.fromkeys(_FIXED))
        for name in ("stop", "logit_bias", "logprobs"):
            if getattr(sampling, name) not in (None, ()):
                raise InvalidRequestError(f"{model} has no parameter {name}; leave it out", name)
    if len(sampling.stop or ()) > dialect.stop_texts:
        message = f"stop: {dialect.name} takes at most {dialect.stop_texts} texts"
        raise InvalidRequestError(message, "stop")
    body = parameters.sampling_parameters(sampling, dialect.sampling, dialect.name, _ELSEWHERE)
    body |= {alias: body[name] for name, alias in dialect.aliases.items() if name in body}
    if sampling.samplers and "samplers" in body:
        body["samplers"] = [_SAMPLERS.get(name, name) for name in sampling.samplers]
    return body | _biases(sampling, dialect) | common.logprob_fields(sampling)


def _biases(sampling: Sampling, dialect: dialects.Dialect) -> JsonObject:
    """`logit_bias` by tokens; raises InvalidRequestError for texts that the server can't read."""
    if not sampling.logit_bias:
        return {}
    if not dialect.text_bias and any(isinstance(token, str) for token, _ in sampling.logit_bias):
        message = f"logit_bias: {dialect.name} knows tokens by their numbers only"
        raise InvalidRequestError(message, "logit_bias")
    biases: JsonObject = {}
    for token, bias in sampling.logit_bias:
        biases[str(token)] = int(bias) if bias.is_integer() else bias  # OpenAI's are whole
    return {"logit_bias": biases}


def chat_body(
    session: Session, model: ModelTraits, max_tokens: int, dialect: dialects.Dialect, adapter: str
) -> JsonObject:
    """The body; `adapter` is the name under which `Message.extra` keeps data to send back.

    Raises InvalidRequestError for a parameter that the server lacks.
    """
    messages = _messages(session, dialect, adapter, thinking=parameters.thinks(session, model))
    body: JsonObject = {"model": model.id, "messages": messages, "stream": True}
    if dialect.usage_option:
        body["stream_options"] = {"include_usage": True}
    if max_tokens > 0:
        body[_limit_parameter(model)] = max_tokens
    if session.tools:
        body["tools"] = [_tool(spec) for spec in session.tools]
    name = session.tool_choice.name if session.tool_choice else ""
    body |= common.tool_choice(session, {"type": "function", "function": {"name": name}})
    body |= common.response_format(session.output_format, dialect)
    body |= _thinking(session, model, dialect)
    return body | chat_sampling(session.sampling, model.id, dialect)


def _limit_parameter(model: ModelTraits) -> str:
    """The name of the output limit: the known one, unless the server has refused it."""
    usual = "max_completion_tokens" if dialects.reasons(model.id) else "max_tokens"
    names = (model.limit_parameter or usual, *parameters.LIMIT_PARAMETERS)
    return next((name for name in names if name not in model.refused), names[0])


def _messages(
    session: Session, dialect: dialects.Dialect, adapter: str, *, thinking: bool
) -> list[JsonObject]:
    """The conversation as this server accepts it; `thinking`: the model is to think."""
    conversation = history.normalise(session.system_message, session.messages, dialect.rules)
    system = conversation.system
    if not dialect.grammar:
        system = common.asking_for_json(system, session.output_format)
    head: list[JsonObject] = [{"role": "system", "content": system}] if system else []
    # a server that wants every thought back wants none from a model that does not think
    thoughts = dialect.thoughts if thinking or not dialect.every_thought else ()
    return head + [_message(m, dialect, thoughts, adapter) for m in conversation.messages]


def _message(
    message: Message, dialect: dialects.Dialect, thoughts: tuple[str, ...], adapter: str
) -> JsonObject:
    """A message; `thoughts` are the fields in which its reasoning goes back."""
    if message.role is Role.TOOL:
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if message.role is not Role.ASSISTANT:
        return {"role": "user", "content": _content(message)}
    body: JsonObject = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.reasoning or dialect.every_thought:
        body |= dict.fromkeys(thoughts, message.reasoning)
    kept = message.extra.get(adapter, {})
    return body | {name: kept[name] for name in dialect.kept if name in kept}


def _content(message: Message) -> str | list[JsonObject]:
    """Plain text without images: text-only servers accept nothing else."""
    if not message.images:
        return message.content
    parts: list[JsonObject] = [
        {"type": "image_url", "image_url": {"url": image.data_url}} for image in message.images
    ]
    if message.content:
        parts.append({"type": "text", "text": message.content})
    return parts


def _call(call: ToolCall) -> JsonObject:
    """A call that a model has made; this API has its arguments as JSON text."""
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _tool(spec: ToolSpec) -> JsonObject:
    """A tool's declaration, without a description if it is empty."""
    function: JsonObject = {"name": spec.name, "parameters": spec.parameters}
    if spec.description:
        function["description"] = spec.description
    return {"type": "function", "function": function}


def _thinking(session: Session, model: ModelTraits, dialect: dialects.Dialect) -> JsonObject:
    """The fields that turn the model's reasoning on or off."""
    thinking = parameters.thinks(session, model)
    if dialect.switch is dialects.Switch.UNSAID:  # the server has no field for it
        return {}
    if dialect.switch is dialects.Switch.THINKING:
        return {"thinking": {"type": "enabled" if thinking else "disabled"}}
    fields: JsonObject = {}
    if dialect.switch is dialects.Switch.TEMPLATE:
        fields["chat_template_kwargs"] = {"enable_thinking": thinking}
        if thinking and session.thinking_budget is not None:
            fields["thinking_budget_tokens"] = session.thinking_budget
    level = model.effort or ("medium" if thinking else "")
    effort = dialects.chat_effort(model.id, level, tools=bool(session.tools))
    takes_effort = model.thinking or (model.effort and dialect.switch is dialects.Switch.TEMPLATE)
    if effort is None and thinking and takes_effort:  # not one of OpenAI's models
        effort = level
    if effort:
        fields["reasoning_effort"] = effort
    return fields


_PROPS = "../props"
_LM_STUDIO = "../api/v0/models"


class OpenAIChatAdapter(common.OpenAIAdapter):
    """Chat completions in one dialect.

    Paths are relative references to the base URL with a slash at its end: `../props` is llama.cpp's
    `/props` beside its `/v1`.
    """

    name: ClassVar[str] = "openai"

    def __init__(self, dialect: dialects.Dialect = dialects.PLAIN, api_version: str = "") -> None:
        super().__init__(dialect, api_version)

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        body = chat_body(session, model, max_tokens, self.dialect, self.name)
        return ApiRequest(f"chat/completions{self.query}", body)

    @property
    def extras(self) -> Collection[str]:
        return self.dialect.extras

    def plain(self) -> Adapter:
        return OpenAIChatAdapter(self.dialect.plain, self.api_version)

    def decoder(self) -> stream.Decoder:
        return chat_decoder.ChatDecoder()

    def probes(self, model: str) -> list[ApiRequest]:
        """llama.cpp's properties and LM Studio's own list; the server may be either."""
        if not self.dialect.probed:
            return []
        return [ApiRequest(path, method="GET", stream=False) for path in (_PROPS, _LM_STUDIO)]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        if request.path == _PROPS:
            return model_list.llama_cpp_model(body, model, source="llama.cpp's /props")
        entries = (entry for entry in dialects.parse_models(body) if entry.id == model)
        return next((entry for entry in entries if entry.context_size), None)


class ShepherdChatAdapter(OpenAIChatAdapter):
    """The adapter for Shepherd's own server."""

    lists_default_first: ClassVar[bool] = True
