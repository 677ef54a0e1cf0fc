"""The form that an answer must have, in OpenAI's words."""

from shepherd.backends.api.openai.dialects import Dialect
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject
from shepherd.session import Session
from shepherd.structure import OutputFormat, ToolChoice

SCHEMA_NAME = "answer"
ASK_FOR_JSON = "Answer with a JSON object."
"""OpenAI takes `json_object` only where the word JSON stands in the conversation."""

_ANY_OBJECT: JsonObject = {"type": "object"}


def is_any_object(wanted: OutputFormat | None) -> bool:
    """Whether the answer may be any JSON object."""
    return wanted is not None and wanted.schema == _ANY_OBJECT and not wanted.grammar


def response_format(wanted: OutputFormat | None, dialect: Dialect) -> JsonObject:
    """The fields of a chat request; raises InvalidRequestError where the server has no grammars."""
    if wanted is None:
        return {}
    if wanted.grammar:
        if not dialect.grammar:
            raise no_grammar(dialect.name)
        return {"grammar": wanted.grammar}
    if is_any_object(wanted):
        return {"response_format": {"type": "json_object"}}
    schema = {"name": SCHEMA_NAME, "schema": wanted.schema, "strict": wanted.strict}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def text_format(wanted: OutputFormat | None) -> JsonObject:
    """The fields of a responses request; raises InvalidRequestError for a grammar."""
    if wanted is None:
        return {}
    if wanted.grammar:
        raise no_grammar("openai-responses")
    if is_any_object(wanted):
        return {"text": {"format": {"type": "json_object"}}}
    schema = {"name": SCHEMA_NAME, "schema": wanted.schema, "strict": wanted.strict}
    return {"text": {"format": {"type": "json_schema", **schema}}}


def no_grammar(api: str) -> InvalidRequestError:
    """The error for an API that knows JSON schemas only."""
    return InvalidRequestError(f"grammar: {api} has none; use a JSON schema", "grammar")


def asking_for_json(system: str, wanted: OutputFormat | None) -> str:
    """The system message, with the word JSON in it where the API insists on it."""
    if not is_any_object(wanted) or "json" in system.lower():
        return system
    return f"{system}\n\n{ASK_FOR_JSON}".lstrip()


def tool_choice(session: Session, named: JsonObject) -> JsonObject:
    """The fields that make the answer calls; `named` is the API's form for one certain tool.

    Without tools there is nothing to choose from, and no field.
    """
    choice: ToolChoice | None = session.tool_choice
    if choice is None or not session.tools:
        return {}
    fields: JsonObject = {"tool_choice": named if choice.name else "required"}
    if choice.single or choice.name:
        fields["parallel_tool_calls"] = False
    return fields
