"""Google's own types and documented rules as the judge of what we send and feed."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from google.genai import types

from shepherd.messages import JsonObject

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_BODY = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}


def check_body(body: JsonObject | None) -> list[types.Content]:
    """The contents of a valid body; unknown fields anywhere are refused."""
    assert body is not None
    assert set(body) <= _BODY
    contents = [types.Content.model_validate_json(json.dumps(c)) for c in body["contents"]]
    if "systemInstruction" in body:
        types.Content.model_validate_json(json.dumps(body["systemInstruction"]))
    for tool in body.get("tools", []):
        for declaration in types.Tool.model_validate(tool).function_declarations or []:
            assert _NAME.fullmatch(declaration.name or "")
    types.ToolConfig.model_validate(body.get("toolConfig", {}))
    types.GenerationConfig.model_validate(body.get("generationConfig", {}))
    check_contents(contents)
    return contents


def check_contents(contents: Sequence[types.Content]) -> None:
    """Turns alternate from the user to the user, calls are answered at once and in order."""
    assert contents
    assert (contents[0].role, contents[-1].role) == ("user", "user")
    assert all({a.role, b.role} == {"user", "model"} for a, b in pairwise(contents))
    asked: list[tuple[str | None, str | None]] = []
    for content in contents:
        assert content.parts
        for part in content.parts:
            check_part(part)
        calls = [p.function_call for p in content.parts if p.function_call]
        answers = [p.function_response for p in content.parts if p.function_response]
        assert content.role == "model" or not calls
        assert [(a.name, a.id) for a in answers] == asked
        assert all(p.function_response for p in content.parts[: len(answers)])
        asked = [(call.name, call.id) for call in calls]
    assert not asked


def check_part(part: types.Part) -> None:
    kinds = [part.text, part.function_call, part.function_response, part.inline_data]
    assert sum(kind is not None for kind in kinds) == 1
    assert part.text != "" or part.thought_signature
    for named in (part.function_call, part.function_response):
        assert named is None or _NAME.fullmatch(named.name or "")


def valid(chunk: JsonObject) -> JsonObject:
    """The chunk, which Google's type takes."""
    types.GenerateContentResponse.model_validate_json(json.dumps(chunk))
    return chunk


def chunk(*parts: JsonObject, reason: str = "", **more: JsonObject) -> JsonObject:
    """A chunk of an answer with these parts."""
    candidate: JsonObject = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if reason:
        candidate["finishReason"] = reason
    return valid({"candidates": [candidate], **more})
