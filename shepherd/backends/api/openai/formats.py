"""The required format of an answer, in OpenAI's fields."""

from shepherd.backends.api.openai.dialects import Dialect
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.session import Session
from shepherd.structure import OutputFormat, ToolChoice

SCHEMA_NAME = "answer"
ASK_FOR_JSON = "Answer with a JSON object."
"""OpenAI accepts `json_object` only if the conversation contains the word JSON."""

_ANY_OBJECT: JsonObject = {"type": "object"}


def is_any_object(output_format: OutputFormat | None) -> bool:
    """Whether the answer may be any JSON object."""
    if output_format is None:
        return False
    return output_format.schema == _ANY_OBJECT and not output_format.grammar


def response_format(output_format: OutputFormat | None, dialect: Dialect) -> JsonObject:
    """The fields of a chat request; raises InvalidRequestError if the server has no grammars."""
    if output_format is None:
        return {}
    if output_format.grammar:
        if not dialect.grammar:
            raise no_grammar(dialect.name)
        return {"grammar": output_format.grammar}
    if is_any_object(output_format):
        return {"response_format": {"type": "json_object"}}
    schema = {"name": SCHEMA_NAME, "schema": output_format.schema, "strict": output_format.strict}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def text_format(output_format: OutputFormat | None) -> JsonObject:
    """The fields of a responses request; raises InvalidRequestError for a grammar."""
    if output_format is None:
        return {}
    if output_format.grammar:
        raise no_grammar("openai-responses")
    if is_any_object(output_format):
        return {"text": {"format": {"type": "json_object"}}}
    schema = {"name": SCHEMA_NAME, "schema": output_format.schema, "strict": output_format.strict}
    return {"text": {"format": {"type": "json_schema", **schema}}}


def no_grammar(api: str) -> InvalidRequestError:
    """The error for an API that supports only JSON schemas."""
    return InvalidRequestError(f"grammar: {api} has none; use a JSON schema", "grammar")


def asking_for_json(system: str, output_format: OutputFormat | None) -> str:
    """The system message, with the word JSON in it if the API requires it."""
    if not is_any_object(output_format) or "json" in system.lower():
        return system
    return f"{system}\n\n{ASK_FOR_JSON}".lstrip()


def tool_choice(session: Session, named: JsonObject) -> JsonObject:
    """The fields that force a call; `named` is the API's form for one certain tool.

    Without tools there are no fields.
    """
    choice: ToolChoice | None = session.tool_choice
    if choice is None or not session.tools:
        return {}
    fields: JsonObject = {"tool_choice": named if choice.name else "required"}
    if choice.single or choice.name:
        fields["parallel_tool_calls"] = False
    return fields
