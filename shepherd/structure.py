"""The required structure of an answer: a tool call, JSON of a schema, or text of a grammar."""

from dataclasses import dataclass

from shepherd.messages import JsonObject


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The answer must consist of tool calls; without a ToolChoice, the model decides.

    `name` requires exactly one call, of this tool. `single` allows at most one call.
    """

    name: str = ""
    single: bool = False


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The answer must be JSON that fits `schema`, or text that fits `grammar` (GBNF, from `root`).

    One of the two is set; the schema {"type": "object"} means any object. `strict` refuses a schema
    that can't be enforced in full.
    """

    schema: JsonObject | None = None
    grammar: str = ""
    strict: bool = False
