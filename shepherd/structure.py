"""What an answer must look like: a call of a tool, JSON of a schema, text of a grammar."""

from dataclasses import dataclass

from shepherd.messages import JsonObject


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The answer must be calls of the tools on offer; no choice leaves it to the model.

    `name`: exactly one call, of this tool. `single`: at most one call.
    """

    name: str = ""
    single: bool = False


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The answer must be JSON that fits `schema`, or text that fits `grammar` (GBNF, from `root`).

    One of the two is set; the schema {"type": "object"} is any object. `strict` refuses a schema
    of which a part can't be enforced.
    """

    schema: JsonObject | None = None
    grammar: str = ""
    strict: bool = False
