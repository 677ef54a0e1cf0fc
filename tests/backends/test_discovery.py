"""What is found on this machine."""

import asyncio
from pathlib import Path

from shepherd.catalog.discovery import discover
from shepherd.cli.repl.app import suggestions
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from tests.backends.api.upstream import Received, Reply, Upstream
from tests.backends.ggufs import gguf


def port(server: Upstream) -> str:
    return server.url.rsplit(":", 1)[1]


async def test_keys_servers_and_files_are_found(tmp_path: Path) -> None:
    gguf(tmp_path / ".cache/huggingface/hub/models--a/snapshots/1/big.gguf", 3_000_000)
    env = {
        "HOME": str(tmp_path),
        "ANTHROPIC_API_KEY": "sk-x",
        "XAI_API_KEY": "x",
        "GROQ_API_KEY": " ",
    }
    ollama = Upstream(lambda r: Reply({"models": [{"name": "qwen3:4b"}, {"name": "b"}]}))
    llama = Upstream(lambda r: Reply({"default_generation_settings": {"n_ctx": 4096}}))
    async with ollama, llama:
        env |= {"OLLAMA_HOST": ollama.url, "LLAMA_ARG_PORT": port(llama)}
        found = await discover(env, tmp_path / "models", probe_seconds=30)
    commands = [item.command for item in found]
    assert commands[0].startswith("shepherd provider add anthropic --use --type anthropic --model")
    assert commands[1].endswith("--base-url https://api.x.ai/v1")
    assert commands[2].endswith(f"--type ollama --base-url {ollama.url} --model qwen3:4b")
    assert commands[3].endswith(f"--base-url http://127.0.0.1:{port(llama)}/v1")
    assert commands[4].endswith("/big.gguf")
    assert len(commands) == 5
    assert all("sk-x" not in item.description + item.command for item in found)


async def test_what_is_something_else_or_silent_is_passed_over(tmp_path: Path) -> None:
    def silent(request: Received) -> Reply:
        return Reply([60.0])

    async with Upstream(lambda r: Reply("<html>")) as other, Upstream(silent) as still:
        env = {"HOME": str(tmp_path), "OLLAMA_HOST": f"0.0.0.0:{port(other)}"}
        found = await asyncio.wait_for(
            discover(env | {"LLAMA_ARG_PORT": port(still)}, tmp_path), 30
        )
    assert found == []


async def test_an_ollama_without_models_is_told_how_to_get_one(tmp_path: Path) -> None:
    async with Upstream(lambda r: Reply({"models": []})) as empty, Upstream() as other:
        env = {"HOME": str(tmp_path), "OLLAMA_HOST": f"0.0.0.0:{port(empty)}"}
        env["LLAMA_ARG_PORT"] = port(other)
        [found] = await discover(env, tmp_path, probe_seconds=30)
    assert found.command == "shepherd model pull qwen3:4b --provider ollama"


async def test_addresses_that_are_none_are_passed_over(tmp_path: Path) -> None:
    async with Upstream() as other:
        for host in ("http://[", "https://127.0.0.1:1", "\x00", "x" * 300):
            for llama in (port(other), "x", "99999"):
                env = {"HOME": str(tmp_path), "OLLAMA_HOST": host, "LLAMA_ARG_PORT": llama}
                assert await discover(env, tmp_path, probe_seconds=30) == []


async def test_each_is_suggested_once_and_only_at_first(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "OPENAI_API_KEY": "sk-x"}
    paths, config = Paths.from_env(env), load_config(tmp_path, env)
    book = ProviderBook(paths, env)
    told = await suggestions(config, book, env, paths.suggestions_file)
    assert any("OPENAI_API_KEY: shepherd provider add openai" in line for line in told)
    again = await suggestions(config, book, env, paths.suggestions_file)
    assert all("OPENAI_API_KEY" not in line for line in again)
    env |= {"XAI_API_KEY": "x"}
    assert any("XAI" in s for s in await suggestions(config, book, env, paths.suggestions_file))
    env |= {"MISTRAL_API_KEY": "x"}
    chosen = load_config(tmp_path, env, {"model.name": "pup"})
    assert await suggestions(chosen, book, env, paths.suggestions_file) == []
    book.store.save(make_provider("work", {"type": "openai"}))
    assert await suggestions(config, book, env, paths.suggestions_file) == []
