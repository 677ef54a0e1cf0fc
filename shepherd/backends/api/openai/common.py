"""What both of OpenAI's languages have: an adapter's base, formats, errors, embeddings."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast
from urllib.parse import quote

from shepherd import errors, json_text, messages, sampling
from shepherd.backends.api import adapter, embedding, stream
from shepherd.backends.api.openai.dialects import OPENAI, Dialect, parse_models
from shepherd.backends.embedding import EmbeddingInput
from shepherd.session import OutputFormat, Session, ToolChoice

SCHEMA_NAME = "answer"
ASK_FOR_JSON = "Answer with a JSON object."
"""OpenAI accepts `json_object` only if the conversation contains the word JSON."""

_ANY_OBJECT: messages.JsonObject = {"type": "object"}


def is_any_object(output_format: OutputFormat | None) -> bool:
    """Whether the answer may be any JSON object."""
    if output_format is None:
        return False
    return output_format.schema == _ANY_OBJECT and not output_format.grammar


def response_format(output_format: OutputFormat | None, dialect: Dialect) -> messages.JsonObject:
    """The fields of a chat request; raises InvalidRequestError if the server has no grammars."""
    if output_format is None:
        return {}
    if output_format.grammar:
        if not dialect.grammar:
            raise no_grammar(dialect.name)
        return {"grammar": output_format.grammar}
    if is_any_object(output_format):
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": _named(output_format)}}


def text_format(output_format: OutputFormat | None) -> messages.JsonObject:
    """The fields of a responses request; raises InvalidRequestError for a grammar."""
    if output_format is None:
        return {}
    if output_format.grammar:
        raise no_grammar("openai-responses")
    if is_any_object(output_format):
        return {"text": {"format": {"type": "json_object"}}}
    return {"text": {"format": {"type": "json_schema", **_named(output_format)}}}


def _named(output_format: OutputFormat) -> messages.JsonObject:
    return {"name": SCHEMA_NAME, "schema": output_format.schema, "strict": output_format.strict}


def no_grammar(api: str) -> errors.InvalidRequestError:
    """The error for an API that supports only JSON schemas."""
    return errors.InvalidRequestError(f"grammar: {api} has none; use a JSON schema", "grammar")


def asking_for_json(system: str, output_format: OutputFormat | None) -> str:
    """The system message, with the word JSON in it if the API requires it."""
    if not is_any_object(output_format) or "json" in system.lower():
        return system
    return f"{system}\n\n{ASK_FOR_JSON}".lstrip()


def tool_choice(session: Session, named: messages.JsonObject) -> messages.JsonObject:
    """The fields that force a call; `named` is the API's form for one certain tool.

    Without tools there are no fields.
    """
    choice: ToolChoice | None = session.tool_choice
    if choice is None or not session.tools:
        return {}
    fields: messages.JsonObject = {"tool_choice": named if choice.name else "required"}
    if choice.single or choice.name:
        fields["parallel_tool_calls"] = False
    return fields


_STATUSES = (
    (429, ("rate_limit", "insufficient_quota", "too_many_requests")),
    (401, ("authentication", "invalid_api_key")),
    (403, ("permission",)),
    (404, ("not_found",)),
    (503, ("overloaded", "unavailable")),
    (400, ("invalid", "bad_request", "badrequest", "context_length", "exceed_context", "too_long")),
)


def error_delta(body: messages.JsonObject) -> stream.Error:
    """The error of an event that has an `error`, or that is itself one.

    The status is the one in the error, else the usual one for its kind, else 500.
    """
    error = json_text.as_object(body.get("error")) or body
    for name in ("code", "status", "http_code"):
        code = error.get(name)
        if isinstance(code, str) and code.isdecimal():  # "429"; others are words
            code = int(code)
        status = json_text.as_count(code)
        if status is not None and 400 <= status < 600:
            return stream.Error(body, status)
    kinds = f"{json_text.as_text(error.get('code'))} {json_text.as_text(error.get('type'))}".lower()
    for status, words in _STATUSES:
        if any(word in kinds for word in words):
            return stream.Error(body, status)
    return stream.Error(body, 500)


def logprob_fields(values: sampling.Sampling) -> messages.JsonObject:
    """The fields that request log probabilities, with this number of alternatives for a token."""
    if values.logprobs is None:
        return {}
    if values.logprobs == 0:
        return {"logprobs": True}
    return {"logprobs": True, "top_logprobs": values.logprobs}


def token_logprobs(logprobs: messages.JsonObject) -> tuple[sampling.TokenLogprob, ...]:
    """The tokens of a `logprobs` object; () if there are none."""
    return tuple(token_logprob(item) for item in json_text.as_objects(logprobs.get("content")))


def token_logprob(item: messages.JsonObject) -> sampling.TokenLogprob:
    """One token with its alternatives."""
    top = tuple(
        sampling.TokenProbability(_piece(other), _probability(other))
        for other in json_text.as_objects(item.get("top_logprobs"))
    )
    return sampling.TokenLogprob(_piece(item), _probability(item), top)


def _piece(item: messages.JsonObject) -> bytes:
    """The token's bytes; without a list of them, those of its text."""
    listed = item.get("bytes")
    if isinstance(listed, list):
        values = cast(list[object], listed)
        if all(isinstance(value, int) and 0 <= value < 256 for value in values):
            return bytes(cast(list[int], values))
    return json_text.as_text(item.get("token")).encode("utf-8", "replace")


def _probability(item: messages.JsonObject) -> float:
    """The logarithm of the probability; minus infinity without one."""
    value: object = item.get("logprob")
    return float(value) if isinstance(value, int | float) else float("-inf")


class OpenAIAdapter(adapter.Adapter):
    """What both languages share; `api_version` is Azure's, for a URL that names a deployment."""

    default_base_url: ClassVar[str] = "https://api.openai.com/v1"

    def __init__(self, dialect: Dialect = OPENAI, api_version: str = "") -> None:
        self.dialect = dialect
        self.prints_calls = not dialect.official
        self.api_version = api_version
        self.query = f"?api-version={quote(api_version)}" if api_version else ""

    def auth(self, api_key: str) -> Mapping[str, str]:
        """The header of the key; Azure has one of its own, which holds nothing else."""
        if not api_key:
            return {}
        name = self.dialect.key_header
        return {name: f"Bearer {api_key}" if name == "Authorization" else api_key}

    @property
    def embeddings(self) -> adapter.EmbeddingApi:
        return OpenAIEmbeddings(self.query)

    def models(self) -> adapter.ApiRequest:
        """With a version it goes to the resource above the deployment."""
        above = "../../" if self.api_version else ""
        return adapter.ApiRequest(f"{above}models{self.query}", method="GET", stream=False)

    def parse_models(self, body: messages.JsonObject) -> list[adapter.ModelEntry]:
        return parse_models(body)


class OpenAIEmbeddings(adapter.EmbeddingApi):
    """`embeddings` and `rerank` below the base URL; `query` is Azure's version."""

    def __init__(self, query: str = "") -> None:
        self._query = query

    def request(self, model: str, request: EmbeddingInput) -> adapter.ApiRequest:
        body: messages.JsonObject = {"model": model, "input": embedding.texts_or_tokens(request)}
        if request.dimensions:
            body["dimensions"] = request.dimensions
        return adapter.ApiRequest(f"embeddings{self._query}", body, stream=False)

    def parse(self, body: messages.JsonObject) -> adapter.EmbeddingAnswer:
        items = json_text.as_objects(body.get("data"))
        items.sort(key=lambda item: json_text.as_count(item.get("index")) or 0)
        usage = json_text.as_object(body.get("usage"))
        vectors = embedding.as_vectors([item.get("embedding") for item in items])
        return adapter.EmbeddingAnswer(vectors, json_text.as_count(usage.get("prompt_tokens")))

    def rank_request(self, model: str, query: str, documents: Sequence[str]) -> adapter.ApiRequest:
        body: messages.JsonObject = {"model": model, "query": query, "documents": list(documents)}
        return adapter.ApiRequest("rerank", body, stream=False)
