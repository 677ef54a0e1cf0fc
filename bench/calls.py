"""BFCL's calls under `tool_choice: required`: `python -m bench.calls DATA [--tasks N]`.

DATA is the folder `bfcl_eval/data` of PyPI's bfcl-eval (Apache-2.0; none of its code is used). Each
task is asked once, without chance, of Shepherd and of llama.cpp's own server on the same weights.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import jsonschema

from bench.peers import Load, llama_server, shepherd_server
from bench.table import machine, markdown
from bench.weights import SMOLLM2, chosen_models
from shepherd.json_text import as_list, as_object

CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple")
CONTEXT = 8192
MAX_TOKENS = 256
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}

Call = tuple[str, dict[str, Any]]
Task = dict[str, Any]


def main() -> None:
    """Print a row for each server and category."""
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", action="append", help=f"pup, {SMOLLM2}, or a GGUF file")
    parser.add_argument("--tasks", type=int, default=100, help="of each category, evenly spread")
    options = parser.parse_args()
    print(machine())
    rows: list[list[str]] = []
    for name, file in chosen_models(options.model or [], [SMOLLM2]).items():
        load = Load(file, CONTEXT)
        for server, served in (("Shepherd", shepherd_server), ("llama.cpp", llama_server)):
            with served(load) as url:
                for category in CATEGORIES:
                    tasks = list(read_tasks(options.data, category, options.tasks))
                    rows.append([name, server, category, *measured(url, tasks)])
                    print(rows[-1], flush=True)
    print(markdown(("model", "server", "category", "valid calls", "right", "cut", "failed"), rows))


def read_tasks(data: Path, category: str, count: int) -> Iterator[Task]:
    """Tasks of a category with their possible answers, evenly spread over all of them."""
    name = f"BFCL_v4_{category}.json"
    tasks = [json.loads(line) for line in (data / name).read_text("utf-8").splitlines()]
    answers = (data / "possible_answer" / name).read_text("utf-8").splitlines()
    step = max(1, len(tasks) // count)
    for task, answer in list(zip(tasks, map(json.loads, answers), strict=True))[::step][:count]:
        yield {**task, "answers": answer["ground_truth"]}


def measured(url: str, tasks: Sequence[Task]) -> tuple[str, str, str, str]:
    """The shares of valid and of right answers, and the numbers of cut and of failed ones.

    A cut answer can't be valid, so the first share is of the others.
    """
    valid = right = cut = failed = 0
    with httpx.Client(base_url=url, timeout=600) as client:
        for task in tasks:
            tools = offered(task)
            calls, is_cut = asked(client, task, tools)
            cut += is_cut
            failed += calls is None and not is_cut
            valid += (
                not is_cut and bool(calls) and all(is_valid(call, tools) for call in calls or ())
            )
            right += is_right(calls or (), task["answers"])
    return (
        _share(valid, len(tasks) - cut),
        _share(right, len(tasks)),
        f"{cut} at {MAX_TOKENS} tokens",
        str(failed),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f} % of {whole}"


def offered(task: Task) -> dict[str, Any]:
    """The JSON schemas of a task's tools by their names."""
    return {_name(f["name"]): _schema(f["parameters"]) for f in task["function"]}


def asked(
    client: httpx.Client, task: Task, tools: dict[str, Any]
) -> tuple[list[Call] | None, bool]:
    """The calls of an answer, and whether it was cut.

    The calls are None if the server refused, or an argument is no JSON.
    """
    described = {_name(f["name"]): f["description"] for f in task["function"]}
    body = {
        "model": "default",
        "messages": task["question"][0],
        "tools": [
            {
                "type": "function",
                "function": {"name": n, "description": described[n], "parameters": tools[n]},
            }
            for n in tools
        ],
        "tool_choice": "required",
        "parallel_tool_calls": len(task["answers"]) > 1,
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    response = client.post("/v1/chat/completions", json=body)
    if response.is_error:
        return None, False
    choice = as_object(response.json()["choices"][0])
    is_cut, message = choice["finish_reason"] == "length", as_object(choice["message"])
    called = [as_object(as_object(call)["function"]) for call in as_list(message.get("tool_calls"))]
    try:
        calls = [(str(c["name"]), json.loads(str(c["arguments"] or "{}"))) for c in called]
    except ValueError:
        return None, is_cut
    return calls, is_cut


def is_valid(call: Call, tools: dict[str, Any]) -> bool:
    """Whether a call is one of a tool on offer, with arguments that its schema takes."""
    name, arguments = call
    try:
        jsonschema.validate(arguments, tools[name])
    except (KeyError, jsonschema.ValidationError):
        return False
    return True


def is_right(calls: Sequence[Call], answers: Sequence[dict[str, Any]]) -> bool:
    """Whether each expected call was made once, in any order, and no other one."""
    left = list(calls)
    for answer in answers:
        ((name, values),) = answer.items()
        made = next((c for c in left if c[0] == _name(name) and _fits(c[1], values)), None)
        if made is None:
            return False
        left.remove(made)
    return not left


def _fits(arguments: dict[str, Any], values: dict[str, list[Any]]) -> bool:
    """Whether all arguments have a possible value; "" among those means that none is needed."""
    missing = values.keys() - arguments.keys()
    return arguments.keys() <= values.keys() and (
        all("" in values[key] for key in missing)
        and all(_is_one_of(value, values[key]) for key, value in arguments.items())
    )


def _is_one_of(value: Any, possible: Sequence[Any]) -> bool:
    if isinstance(value, dict):
        written = cast(dict[str, Any], value)
        return any(isinstance(p, dict) and _fits(written, cast(Any, p)) for p in possible)
    return any(
        (_plain(value) == _plain(p) and type(value) is not bool) or value is p for p in possible
    )


def _plain(value: Any) -> Any:
    """A value as it is compared: texts without case, spaces and punctuation."""
    if isinstance(value, str):
        return re.sub(r"[ ,./\-_*^]", "", value).lower().replace("'", '"')
    return [_plain(v) for v in cast(list[Any], value)] if isinstance(value, list) else value


def _name(name: str) -> str:
    """A tool's name as clients may write it, without dots."""
    return re.sub(r"[^\w-]", "_", name)


def _schema(node: Any) -> Any:
    """A schema with the names of types that JSON schemas have."""
    if isinstance(node, list):
        return [_schema(item) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    items = cast(dict[str, Any], node).items()
    schema = {key: _schema(value) for key, value in items if key != "type"}
    kind = node.get("type")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - JSON
    if isinstance(kind, str):
        kind = _TYPES.get(kind, kind)
        return schema if kind is None else {**schema, "type": kind}
    return {**schema, **({"type": _schema(kind)} if kind is not None else {})}


if __name__ == "__main__":
    main()
