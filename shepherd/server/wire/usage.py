"""Token counts that answers report and backends don't measure."""

from shepherd.backends.base import Generation


def reasoning_tokens(generation: Generation) -> int:
    """How many of the generated tokens are reasoning: an estimate by the share of its characters.

    Backends count the tokens of an answer as a whole. All of them are reasoning where nothing
    else was written, none where no reasoning was.
    """
    message, tokens = generation.message, generation.stats.completion_tokens
    reasoning = len(message.reasoning)
    calls = sum(len(call.name) + len(call.arguments_json) for call in message.tool_calls)
    rest = len(message.content) + calls
    return round(tokens * reasoning / (reasoning + rest)) if reasoning else 0
