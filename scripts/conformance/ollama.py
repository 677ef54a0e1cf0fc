"""Every method of Ollama's clients for Python and JavaScript, against Shepherd."""

import asyncio
import inspect
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ollama

from scripts.conformance.place import node, shepherd_server
from scripts.conformance.verdict import Verdict

MESSAGES = [{"role": "user", "content": "Hi"}]
FORMAT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
LEFT_OUT = (
    "`pull`, `push`, `create`, `copy`, `delete`, `create_blob`: its registry, refused by name",
    "`web_search`, `web_fetch`: its own service on the web",
    "`systemone`: its own service",
)
NOT_SERVED = frozenset(
    (
        *("pull", "push", "create", "copy", "delete", "create_blob"),
        *("web_search", "web_fetch", "webSearch", "webFetch", "systemone"),
        *("constructor", "encodeImage", "fileExists", "processStreamableRequest", "close"),
    )
)
"""Methods for its registry and its own services, and those that send nothing."""


@dataclass(frozen=True)
class Call:
    """The arguments of a method, and whether its answer is right."""

    arguments: dict[str, Any]
    is_right: Callable[[Any], object]


CALLS: Mapping[str, tuple[Call, ...]] = {
    "chat": (
        Call({"messages": MESSAGES}, lambda answer: answer.done and answer.message.role),
        Call({"messages": MESSAGES, "format": FORMAT}, lambda a: json.loads(a.message.content)),
        Call({"messages": MESSAGES, "think": False}, lambda a: a.eval_count > 0),
        Call({"messages": MESSAGES, "stream": True}, lambda parts: parts[-1].done),
        Call({"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}, lambda a: a.logprobs),
    ),
    "generate": (
        Call({"prompt": "Hi"}, lambda answer: answer.done and answer.eval_count),
        Call({"prompt": "Hi", "format": "json"}, lambda answer: answer.response is not None),
        Call({"prompt": "Hi", "raw": True}, lambda answer: answer.done),
        Call({"prompt": "Hi", "stream": True}, lambda parts: parts[-1].done),
        Call({}, lambda answer: answer.done),
    ),
    "embed": (
        Call({"input": ["a", "b"]}, lambda answer: len(answer.embeddings) == 2),
        Call({"input": "a", "dimensions": 4}, lambda answer: len(answer.embeddings[0]) == 4),
    ),
    "embeddings": (Call({"prompt": "a"}, lambda answer: len(answer.embedding) > 0),),
    "list": (Call({}, lambda answer: answer.models[0].model),),
    "ps": (Call({}, lambda answer: answer.models[0].size is not None),),
    "show": (Call({}, lambda answer: answer.capabilities and answer.details.format),),
}
"""The calls of each method; those with a model get its name."""
WITHOUT_MODEL = ("list", "ps")

SCRIPT = """
const { Ollama } = require("ollama")
const [host, vectors] = process.argv.slice(2)
const [talks, embeds] = [new Ollama({ host }), new Ollama({ host: vectors })]
const model = "default", messages = [{ role: "user", content: "Hi" }]
async function joined(parts) {
  let last
  for await (const part of await parts) last = part
  return last
}
const calls = {
  chat: async () => (await talks.chat({ model, messages })).message.role === "assistant",
  "chat, stream": async () => (await joined(talks.chat({ model, messages, stream: true }))).done,
  generate: async () => (await talks.generate({ model, prompt: "Hi" })).done,
  "generate, stream": async () =>
    (await joined(talks.generate({ model, prompt: "Hi", stream: true }))).done,
  abort: async () => {
    const parts = await talks.chat({ model, messages, stream: true })
    talks.abort()
    return joined(parts).then(() => false, (error) => error.name === "AbortError")
  },
  list: async () => (await talks.list()).models.length > 0,
  ps: async () => (await talks.ps()).models.length > 0,
  show: async () => (await talks.show({ model })).capabilities.length > 0,
  version: async () => (await talks.version()).version.length > 0,
  embed: async () => (await embeds.embed({ model, input: ["a", "b"] })).embeddings.length === 2,
  embeddings: async () => (await embeds.embeddings({ model, prompt: "a" })).embedding.length > 0,
}
const methods = new Set()
for (let p = Object.getPrototypeOf(talks); p !== Object.prototype; p = Object.getPrototypeOf(p))
  Object.getOwnPropertyNames(p).forEach((name) => methods.add(name))
;(async () => {
  const results = {}
  for (const [name, call] of Object.entries(calls))
    results[name] = await call().then((right) => (right ? "" : "the answer is wrong"), String)
  console.log(JSON.stringify({ methods: [...methods], results }))
})()
"""


def run(work: Path) -> list[Verdict]:
    """The clients with the built-in model; a scripted one makes the vectors."""
    script = work / "vectors.script"
    script.write_text("text: Hello.\n", "utf-8")
    packages = node("ollama", "ollama@0")
    with (
        shepherd_server(work, "--max-tokens", "64") as url,
        shepherd_server(work, model=f"script:{script}") as vectors,
    ):
        results = {
            **asyncio.run(_python(ollama.Client, url, vectors)),
            **asyncio.run(_python(ollama.AsyncClient, url, vectors)),
        }
        (work / "calls.cjs").write_text(SCRIPT, "utf-8")
        (work / "node_modules").symlink_to(packages / "node_modules")
        command = ["node", str(work / "calls.cjs"), url, vectors]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=work)
    answer = json.loads(done.stdout)
    missing = set(answer["methods"]) - NOT_SERVED - set(answer["results"])
    in_js = {**answer["results"], **dict.fromkeys(missing, "it is not tried")}
    package = json.loads((packages / "node_modules/ollama/package.json").read_text("utf-8"))
    return [
        _verdict("Ollama's client for Python", version("ollama"), results),
        _verdict("Ollama's client for JavaScript", package["version"], in_js),
    ]


def _verdict(judge: str, release: str, results: Mapping[str, str]) -> Verdict:
    failures = tuple(f"{name}: {problem}" for name, problem in results.items() if problem)
    return Verdict(judge, release, len(results) - len(failures), len(results), LEFT_OUT, failures)


async def _python(
    kind: type[ollama.Client | ollama.AsyncClient], url: str, vectors: str
) -> dict[str, str]:
    """What was wrong with each method of a client, "" if nothing was."""
    results: dict[str, str] = {}
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in NOT_SERVED:
            continue
        client = kind(vectors if name.startswith("embed") else url)
        if name not in CALLS:
            results[name] = "it is not tried"
        for number, call in enumerate(CALLS.get(name, ())):
            try:
                answer = getattr(client, name)(**_arguments(name, call))
                if inspect.isawaitable(answer):
                    answer = await answer
                if call.arguments.get("stream"):
                    is_async = inspect.isasyncgen(answer)
                    answer = [part async for part in answer] if is_async else [*answer]
            except Exception as error:  # noqa: BLE001 - what went wrong is the verdict
                answer = error
            results[f"{kind.__name__}.{name} {number + 1}"] = _problem(call, answer)
    return results


def _arguments(name: str, call: Call) -> dict[str, Any]:
    return {**call.arguments, **({} if name in WITHOUT_MODEL else {"model": "default"})}


def _problem(call: Call, answer: Any) -> str:
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    try:
        is_right = call.is_right(answer)
    except (ValueError, IndexError, TypeError):
        is_right = False
    return "" if is_right else f"the answer is wrong: {str(answer)[:100]}"
