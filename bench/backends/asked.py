"""The request that all clients make: a short conversation and eight tools."""

from typing import Any

from bench.backends.text import TOOL, words

KEY = "secret-key-1234"
MODEL = "model-1"
SYSTEM = f"You are a helpful agent. {''.join(words(300))}"
TEXTS = tuple(f"{turn}: {''.join(words(40))}" for turn in ("question", "answer", "question"))
"""The texts of user, assistant and user."""

_TOOLS = (TOOL, "read_file", "find", "move", "copy", "delete", "list", "test")


def messages() -> list[dict[str, str]]:
    """`TEXTS` in the format of most APIs."""
    roles = ("user", "assistant", "user")
    return [{"role": role, "content": text} for role, text in zip(roles, TEXTS, strict=True)]


def tools(schema: str) -> list[dict[str, Any]]:
    """The tools, with their JSON schema under this name."""
    texts = {key: {"type": "string", "description": f"The {key}."} for key in ("path", "content")}
    more = {"lines": {"type": "integer", "description": "How many lines at most."}}
    parameters = {"type": "object", "properties": texts | more, "required": ["path"]}
    about = "in the working directory."
    return [{"name": n, "description": f"{n} {about}", schema: parameters} for n in _TOOLS]
