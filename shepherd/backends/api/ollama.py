"""The adapter to an Ollama server."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec.structs import replace

from shepherd import json_text
from shepherd.backends.api import adapter, embedding, history, parameters, stream
from shepherd.backends.api.model_list import listed_model
from shepherd.backends.api.openai.common import logprob_fields, token_logprob
from shepherd.backends.embedding import EmbeddingInput, plain_texts
from shepherd.errors import InvalidRequestError
from shepherd.events import FinishReason
from shepherd.messages import JsonObject, Message, Role, ToolSpec
from shepherd.session import OutputFormat, Session

DEFAULT_NUM_CTX = 8192
"""The requested size if none is known: enough for tools, and fits on most machines."""

MAX_DEFAULT_CONTEXT = 32_768
"""The maximum of a trained context that is requested without a setting.

Ollama reserves memory for all of it when it loads the model, and trained contexts often need more
memory than the machine has.
"""

_PARAMETER = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)


def loaded_window(body: JsonObject, model: str) -> adapter.ModelEntry | None:
    """The context of a model that is in memory, from /api/ps."""
    for item in entries(body):
        names = (item.get("name"), item.get("model"))
        if _tagged(model) in {_tagged(name) for name in names if isinstance(name, str)}:
            size = json_text.as_count(item.get("context_length"))
            source = "the model in Ollama's memory"
            return adapter.ModelEntry(model, size, source=source) if size else None
    return None


def stored_window(body: JsonObject, model: str) -> adapter.ModelEntry | None:
    """The context of a model on disk, from /api/show: its `num_ctx`, else its trained context.

    A model in Ollama's cloud has all of its trained context.
    """
    settings = _PARAMETER.findall(json_text.as_text(body.get("parameters")))
    if settings and int(settings[-1]):  # of several the last one counts
        return adapter.ModelEntry(
            model, int(settings[-1]), source="num_ctx in the model's parameters"
        )
    trained = trained_context(body)
    if not trained:
        return None
    if trained <= MAX_DEFAULT_CONTEXT or body.get("remote_host"):
        return adapter.ModelEntry(model, trained, source="context_length of the model")
    source = f"the model could take {trained} tokens; set context_size to use more of them"
    return adapter.ModelEntry(model, MAX_DEFAULT_CONTEXT, source=source)


def entries(body: JsonObject) -> list[JsonObject]:
    """The models in an answer of /api/tags or /api/ps."""
    return json_text.as_objects(body.get("models"))


def _tagged(name: str) -> str:
    """The name with its tag: "qwen3" is "qwen3:latest". A host before the name may have a port."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def trained_context(body: JsonObject) -> int:
    """The context size in the model's training, from /api/show; 0 if unknown."""
    facts = json_text.as_object(body.get("model_info"))
    stated = facts.get(f"{facts.get('general.architecture')}.context_length")
    sizes = [
        json_text.as_count(value) or 0
        for field, value in facts.items()
        if field.endswith(".context_length")  # of any part, if the architecture's is missing
    ]
    return json_text.as_count(stated) or max(sizes, default=0)


RULES = history.Rules(user_first=True, user_last=True, merge=True, tool_name=r"\S+")
"""Ollama accepts any conversation; many of its models' templates require alternation."""

_NAMES = parameters.named(
    *("temperature", "top_p", "top_k", "min_p", "typical_p"),
    *("mirostat", "mirostat_tau", "mirostat_eta", "seed", "stop"),
    penalty_repeat="repeat_penalty",
    penalty_freq="frequency_penalty",
    penalty_present="presence_penalty",
    penalty_last_n="repeat_last_n",
)
_LEVELS = ("low", "medium", "high")
_ANY_OBJECT: JsonObject = {"type": "object"}


def chat_body(session: Session, model: adapter.ModelTraits, max_tokens: int) -> JsonObject:
    """The body; raises InvalidRequestError for a feature that Ollama lacks.

    With `truncate` false, a conversation that does not fit is an error, and we evict messages.
    Otherwise Ollama drops its beginning without a notice. Servers before 0.12.6 do not know the
    field.
    """
    if session.tool_choice is not None and session.tools:  # a call would be required
        message = "Ollama can't be told to call a tool; leave out tool_choice"
        raise InvalidRequestError(message, "tool_choice")
    body: JsonObject = {
        "model": model.id,
        "messages": list(_messages(session, thinking=model.thinking)),
        "stream": True,
        "truncate": False,
        "options": _options(session, model, max_tokens),
    }
    body |= logprob_fields(session.sampling)
    if session.tools:
        body["tools"] = [_tool(tool) for tool in session.tools]
    if model.thinking:
        body["think"] = _think(model, on=parameters.thinks(session, model))
    if session.output_format is not None:
        body["format"] = _format(session.output_format)
    return body


def _options(session: Session, model: adapter.ModelTraits, max_tokens: int) -> JsonObject:
    """Always sends `num_ctx`: without it Ollama uses its own default, however small."""
    result: JsonObject = {"num_ctx": model.context_size or DEFAULT_NUM_CTX}
    if max_tokens:
        result["num_predict"] = max_tokens
    return result | parameters.sampling_parameters(
        session.sampling, _NAMES, "Ollama", elsewhere=("logprobs",)
    )


def _think(model: adapter.ModelTraits, *, on: bool) -> bool | str:
    """GPT-OSS always thinks; it has levels, and does not accept `false`."""
    if "gpt-oss" in model.id:
        return parameters.nearest(model.effort or ("medium" if on else "low"), _LEVELS)
    return on


def _format(output_format: OutputFormat) -> JsonObject | str:
    """The `format` that the answer must have: a schema, or "json" for any object."""
    if output_format.schema is None:  # it is a grammar
        raise InvalidRequestError("Ollama does not support grammars; give a JSON schema", "grammar")
    return "json" if output_format.schema == _ANY_OBJECT else output_format.schema


def _tool(tool: ToolSpec) -> JsonObject:
    """Ollama does not resolve references, and parses properties as objects."""
    inlined = parameters.without_references(tool.parameters)
    named = json_text.as_object(inlined.get("properties"))
    plain = {name: json_text.as_object(part) for name, part in named.items()}
    schema = inlined | {"type": "object", "properties": plain}
    return {"type": "function", "function": parameters.declaration(tool, "parameters", schema)}


def _messages(session: Session, *, thinking: bool) -> Iterator[JsonObject]:
    """The conversation as Ollama accepts it; `thinking`: the model reads its thoughts again."""
    conversation = history.normalise(session.system_message, session.messages, RULES)
    if conversation.system:
        yield {"role": "system", "content": conversation.system}
    for message in conversation.messages:
        yield _message(message, thinking=thinking)


def _message(message: Message, *, thinking: bool) -> JsonObject:
    """One message; its reasoning goes back only to a model that thinks."""
    result: JsonObject = {"role": message.role.value, "content": message.content}
    if message.role is Role.TOOL:
        result["tool_name"] = message.name
    if message.images:
        result["images"] = [image.base64 for image in message.images]
    if message.role is Role.ASSISTANT:
        if thinking and message.reasoning:
            result["thinking"] = message.reasoning
        if message.tool_calls:
            calls = ({"name": c.name, "arguments": c.arguments} for c in message.tool_calls)
            result["tool_calls"] = [{"function": call} for call in calls]
    return result


class OllamaDecoder(stream.Decoder):
    """Understands the lines of one answer."""

    def __init__(self) -> None:
        self._call_count = 0

    def feed(self, name: str, data: JsonObject) -> list[stream.Delta]:
        """The deltas of one line, which may hold a thought, text, calls and the end at once."""
        if "error" in data:
            self.complete = True
            return [stream.Error(data, json_text.as_error_status(data.get("status_code")))]
        deltas: list[stream.Delta] = []
        message = json_text.as_object(data.get("message"))
        if thinking := json_text.as_text(message.get("thinking")):
            deltas.append(stream.Thinking(thinking))
        content = json_text.as_text(message.get("content"))
        logprobs = tuple(map(token_logprob, json_text.as_objects(data.get("logprobs"))))
        if content or logprobs:
            deltas.append(stream.Text(content, logprobs))
        deltas += self._call_deltas(json_text.as_objects(message.get("tool_calls")))
        if data.get("done") is True and not self.complete:
            self.complete = True
            deltas += _usage(data)
            deltas.append(self._stop(json_text.as_text(data.get("done_reason"))))
        return deltas

    def _call_deltas(self, calls: Iterable[JsonObject]) -> list[stream.Call]:
        """Calls arrive whole; an entry without a name is not a call."""
        result: list[stream.Call] = []
        for call in calls:
            function = json_text.as_object(call.get("function"))
            if name := json_text.as_text(function.get("name")):
                arguments = function.get("arguments")
                if not isinstance(arguments, str):  # some models' parsers send the text
                    arguments = json_text.as_object(arguments)
                call_id = json_text.as_text(call.get("id"))
                result.append(stream.Call(self._call_count, call_id, name, arguments))
                self._call_count += 1
        return result

    def _stop(self, reason: str) -> stream.Stop:
        """The stop that `done_reason` means; an answer with calls ends as "stop" too."""
        if reason == "length":
            return stream.Stop(FinishReason.LENGTH)
        if reason in ("load", "unload"):
            return stream.Stop(FinishReason.STOP, f"Ollama did no more than {reason} the model")
        return stream.Stop(FinishReason.TOOL_CALLS if self._call_count else FinishReason.STOP)


def _usage(data: JsonObject) -> Iterator[stream.Usage]:
    """The counts; some versions leave out the prompt's if all of it was cached."""
    prompt = json_text.as_count(data.get("prompt_eval_count"))
    cached = json_text.as_count(data.get("prompt_eval_cached_count"))
    answer = json_text.as_count(data.get("eval_count"))
    if prompt is not None or answer is not None:
        yield stream.Usage(prompt, cached, answer)


class OllamaEmbeddings(adapter.EmbeddingApi):
    """Takes texts only; shortens them if it is allowed to."""

    def request(self, model: str, request: EmbeddingInput) -> adapter.ApiRequest:
        body: JsonObject = {
            "model": model,
            "input": plain_texts(request.inputs),
            "truncate": request.truncate,
        }
        if request.dimensions:
            body["dimensions"] = request.dimensions
        return adapter.ApiRequest("/api/embed", body, stream=False)

    def parse(self, body: JsonObject) -> adapter.EmbeddingAnswer:
        vectors = embedding.as_vectors(json_text.as_list(body.get("embeddings")))
        return adapter.EmbeddingAnswer(vectors, json_text.as_count(body.get("prompt_eval_count")))


_LOADED = "/api/ps"


class OllamaAdapter(adapter.Adapter):
    """/api/chat, streamed as lines of JSON."""

    name: ClassVar[str] = "ollama"
    framing: ClassVar[stream.Framing] = stream.Framing.NDJSON
    default_base_url: ClassVar[str] = "http://localhost:11434"
    tells_abilities: ClassVar[bool] = True
    image_types: ClassVar[frozenset[str]] = frozenset({"image/png", "image/jpeg", "image/webp"})

    def auth(self, api_key: str) -> Mapping[str, str]:
        """A local server does not need a key; proxies before it and Ollama's cloud do."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def chat(
        self, session: Session, model: adapter.ModelTraits, max_tokens: int
    ) -> adapter.ApiRequest:
        return adapter.ApiRequest("/api/chat", chat_body(session, model, max_tokens))

    def decoder(self) -> stream.Decoder:
        return OllamaDecoder()

    @property
    def embeddings(self) -> adapter.EmbeddingApi:
        return OllamaEmbeddings()

    def models(self) -> adapter.ApiRequest:
        return adapter.ApiRequest("/api/tags", method="GET", stream=False)

    def parse_models(self, body: JsonObject) -> list[adapter.ModelEntry]:
        listed = ((item.get("model") or item.get("name"), item) for item in entries(body))
        return [listed_model(name, item) for name, item in listed if isinstance(name, str) and name]

    def probes(self, model: str) -> list[adapter.ApiRequest]:
        """A loaded model tells the size in use; a model on disk tells the possible size."""
        loaded = adapter.ApiRequest(_LOADED, method="GET", stream=False)
        on_disk = adapter.ApiRequest("/api/show", {"model": model}, stream=False)
        return [loaded, on_disk]

    def parse_probe(
        self, request: adapter.ApiRequest, body: JsonObject, model: str
    ) -> adapter.ModelEntry | None:
        """What the answer tells of the model: the window in memory, or the stored one and more."""
        if request.path == _LOADED:
            return loaded_window(body, model)
        abilities, entry = json_text.as_texts(body.get("capabilities")), stored_window(body, model)
        if not abilities:  # an old server does not name them
            return entry
        return replace(
            entry or adapter.ModelEntry(model),
            vision="vision" in abilities,
            thinking="thinking" in abilities,
            tools="tools" in abilities,
        )
