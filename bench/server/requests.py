"""Requests that are expensive for a server without checks."""

import base64
import json
from collections.abc import Callable
from typing import Any

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


def _chat_body(text: str) -> bytes:
    return _body(messages=[{"role": "user", "content": text}])


def _body(**fields: Any) -> bytes:
    return json.dumps({**HI, **fields}).encode()


def _formatted(schema: dict[str, Any]) -> bytes:
    output_format = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return _body(response_format=output_format)


def _tools(count: int, properties: int = 4) -> list[dict[str, Any]]:
    known = {f"p{i}": {"type": "string", "description": "text"} for i in range(properties)}
    parameters = {"type": "object", "properties": known, "required": ["p0"]}
    return [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": parameters}}
        for i in range(count)
    ]


def _image(text: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}


def _references() -> bytes:
    names = [f"d{i}" for i in range(6000)]
    definitions = {name: {"type": "string"} for name in names}
    properties = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    return _formatted({"type": "object", "properties": properties, "$defs": definitions})


def _chain() -> bytes:
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(6000)}
    return _formatted({"$ref": "#/$defs/d0", "$defs": {**links, "d6000": {"type": "string"}}})


BAD_REQUESTS: dict[str, Callable[[], bytes]] = {
    "300,000 empty messages": lambda: b'{"messages": [' + b"{}," * 300_000 + b"{}]}",
    "300,000 short messages": lambda: _body(messages=[HI["messages"][0]] * 300_000),
    "30,000 short messages": lambda: _body(messages=[HI["messages"][0]] * 30_000),
    "a word of 15 MB": lambda: _chat_body("a" * 15_000_000),
    "15 MB of words": lambda: _chat_body("many words " * 1_400_000),
    "4 MB of spaces": lambda: _chat_body(" " * 4_000_000),
    "4 MB of spaces in a word": lambda: _chat_body("a" + " " * 4_000_000 + "b"),
    "4 MB of spaces between values": lambda: b" " * 4_000_000 + _chat_body("hi"),
    "15 MB of escapes": lambda: b'{"messages": "' + b"\\u0041" * 2_500_000 + b'"}',
    "half letters": lambda: b'{"messages": "' + b"\\ud83d" * 1_900_000 + b'"}',
    "5 million lists": lambda: b'{"messages": [' + b"[]," * 5_000_000 + b"[]]}",
    "200,000 keys": lambda: _body(**{f"key{i}": 1 for i in range(200_000)}),
    "100,000 levels": lambda: b'{"messages": ' + b"[" * 100_000,
    "a number of 15 MB": lambda: b'{"seed": ' + b"1" * 15_000_000 + b"}",
    "200,000 biases": lambda: _body(logit_bias={str(i): 1 for i in range(200_000)}),
    "90,000 biases": lambda: _body(logit_bias={str(i): 1 for i in range(90_000)}),
    "a bias for 4 MB of text": lambda: _body(logit_bias={"many words " * 400_000: 1}),
    "128 tools": lambda: _body(tools=_tools(128)),
    "1,000 tools": lambda: _body(tools=_tools(1000)),
    "1,000 tools, a call required": lambda: _body(tools=_tools(1000), tool_choice="required"),
    "one tool of 3 MB": lambda: _body(tools=_tools(1, 40_000)),
    "four stops of 100 KB": lambda: _body(stop=[c * 100_000 for c in "abcd"]),
    "16 stops of 4 KB": lambda: _body(stop=[c * 4096 for c in "abcdefghijklmnop"]),
    "50,000 stops": lambda: _body(stop=["a"] * 50_000),
    "6,000 references": _references,
    "a chain of 6,000 references": _chain,
    "an enum of 50,000 values": lambda: _formatted({"enum": [f"v{i}" for i in range(50_000)]}),
    "a grammar of 4 MB": lambda: _body(grammar='root ::= "a" | "b"\n' + "# note\n" * 600_000),
    "a million answers": lambda: _body(n=1_000_000),
    "40,000 parts": lambda: _body(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 30_000}]
    ),
    "20,000 images": lambda: _body(messages=[{"role": "user", "content": [_image("aa")] * 20_000}]),
    "an image of blanks": lambda: _body(
        messages=[{"role": "user", "content": [_image(" a" * 4_000_000)]}]
    ),
    "an image of 11 MB": lambda: _body(
        messages=[
            {"role": "user", "content": [_image(base64.b64encode(bytes(11_000_000)).decode())]}
        ]
    ),
    "arguments of 4 MB": lambda: _body(
        messages=[
            HI["messages"][0],
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "f", "arguments": "[" * 4_000_000}}],
            },
        ]
    ),
    "8 long answers": lambda: _body(n=8, max_tokens=400, ignore_eos=True),
    "8 answers of 20 likeliest": lambda: _body(n=8, logprobs=True, top_logprobs=20),
}
"""The bodies of chat requests by name; each makes its bytes when called."""
