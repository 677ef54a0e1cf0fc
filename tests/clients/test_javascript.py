"""Clients for JavaScript: an answer, a stream and a tool, with the settings of the page."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.assistant import HELLO, SUNNY, WEATHER
from tests.clients.page import block
from tests.clients.serving import Server
from tests.patience import PATIENCE

PACKAGES = {
    "AI SDK": "ai",
    "openai for JavaScript": "openai",
    "anthropic for JavaScript": "@anthropic-ai/sdk",
    "google-genai for JavaScript": "@google/genai",
    "ollama for JavaScript": "ollama",
}
TOOL = f"""
import {{ z }} from "zod";
const api = process.argv[2], ask = "How is the weather?", print = console.log;
const hi = [{{ role: "user", content: "Hi" }}];
const inputSchema = z.object({{ place: z.string() }});
const parameters = z.toJSONSchema(inputSchema), name = "weather";
const weather = {{ name, description: "The weather.", parameters }};
const execute = ({{ place }}) => place === "Bern" ? "{SUNNY}" : "unknown";
"""
AI_SDK = """
import { generateText, stepCountIs, streamText, tool } from "ai";
globalThis.AI_SDK_LOG_WARNINGS = false; // they stand on the standard output
const model = models[api];
print((await generateText({ model, prompt: "Hi" })).text);
print(await streamText({ model, prompt: "Hi" }).text);
const tools = { weather: tool({ inputSchema, execute }) };
print((await generateText({ model, prompt: ask, tools, stopWhen: stepCountIs(3) })).text);
"""
OPENAI = """
const asked = { model: "default", messages: hi };
print((await client.chat.completions.create(asked)).choices[0].message.content);
print(await client.chat.completions.stream(asked).finalContent());
const run = { ...weather, function: execute, parse: JSON.parse };
const tools = [{ type: "function", function: run }];
print(await client.chat.completions.runTools({ ...asked, tools }).finalContent());
"""
ANTHROPIC = """
const asked = { model: "default", max_tokens: 100, messages: hi };
print((await client.messages.create(asked)).content[0].text);
print(await client.messages.stream(asked).finalText());
const tools = [{ name, description: "The weather.", input_schema: parameters, run: execute,
  parse: (input) => input }];
const end = await client.beta.messages.toolRunner({ ...asked, tools });
print(end.content[0].text);
"""
GOOGLE_GENAI = """
const asked = { model: "default", contents: "Hi" };
print((await client.models.generateContent(asked)).text);
let text = "";
for await (const one of await client.models.generateContentStream(asked)) text += one.text ?? "";
print(text);
const config = { tools: [{ functionDeclarations: [
  { name, description: "The weather.", parametersJsonSchema: parameters }] }] };
const [call] = (await client.models.generateContent({ ...asked, config })).functionCalls;
print(`It is ${execute(call.args)}.`);
"""
OLLAMA = """
const asked = { model: "default", messages: hi };
print((await client.chat(asked)).message.content);
let text = "";
for await (const one of await client.chat({ ...asked, stream: true })) text += one.message.content;
print(text);
const tools = [{ type: "function", function: weather }];
const [call] = (await client.chat({ ...asked, tools })).message.tool_calls;
print(`It is ${execute(call.function.arguments)}.`);
"""
USES = [
    pytest.param(AI_SDK, marks=pytest.mark.client("AI SDK", "Chat")),
    pytest.param(AI_SDK, marks=pytest.mark.client("AI SDK", "Responses")),
    pytest.param(AI_SDK, marks=pytest.mark.client("AI SDK", "Messages")),
    pytest.param(AI_SDK, marks=pytest.mark.client("AI SDK", "Gemini")),
    pytest.param(AI_SDK, marks=pytest.mark.client("AI SDK", "Ollama")),
    pytest.param(OPENAI, marks=pytest.mark.client("openai for JavaScript", "Chat")),
    pytest.param(ANTHROPIC, marks=pytest.mark.client("anthropic for JavaScript", "Messages")),
    pytest.param(GOOGLE_GENAI, marks=pytest.mark.client("google-genai for JavaScript", "Gemini")),
    pytest.param(OLLAMA, marks=pytest.mark.client("ollama for JavaScript", "Ollama")),
]


def modules(package: str) -> Path:
    """The folder of npm beside `PATH` that has a package."""
    for folder in map(Path, os.environ["PATH"].split(":")):
        if folder.name == ".bin" and (folder.parent / package).exists():
            return folder.parent
    pytest.skip(f"{package} is not installed")


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
@pytest.mark.parametrize("code", USES)
def test_an_answer_a_stream_and_a_tool(
    server: Server, tmp_path: Path, request: pytest.FixtureRequest, code: str
) -> None:
    mark = request.node.get_closest_marker("client")
    assert mark is not None
    client, api = mark.args
    (tmp_path / "node_modules").symlink_to(modules(PACKAGES[client]))
    script = tmp_path / "script.mjs"
    script.write_text(block(client, "javascript", server.url) + TOOL + code)
    done = subprocess.run(
        ["node", script, api], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    *answers, weather = done.stdout.splitlines() or [done.stderr]
    assert answers == [HELLO, HELLO], done.stderr
    if mark.args == ("AI SDK", "Gemini"):  # it puts the result into an object of its own
        assert SUNNY in weather
    else:
        assert weather == WEATHER
