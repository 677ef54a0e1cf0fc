"""A model that has failed for good is opened again at the next prompt, once for all sessions."""

from pathlib import Path
from typing import Any, cast

import pytest
from acp.schema import TextContentBlock

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.cli.acp.agent import EditorAgent
from shepherd.cli.acp.opening import SharedModels
from shepherd.config.load import load_config
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config


class Mortal(ScriptedBackend):
    """Can fail for good."""

    failed = False
    closed = False

    @property
    def alive(self) -> bool:
        return not self.failed

    async def aclose(self) -> None:
        self.closed = True


async def test_sessions_answer_again_with_one_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    opened: list[Mortal] = []

    async def opener(config: Config) -> Backend:
        opened.append(Mortal(parse_script("text: one\n---\ntext: two\n---\ntext: three")))
        return opened[-1]

    env = {"HOME": str(tmp_path)}
    config = load_config(tmp_path, env, {})
    posted: list[Any] = []
    models = SharedModels(ProviderBook.from_env(env), lambda book, parallel: opener)
    agent = EditorAgent(config, lambda _: config, models, posted.append, cast(Any, object()))
    sessions = [(await agent.new_session(str(tmp_path))).session_id for _ in range(2)]
    prompt: list[Any] = [TextContentBlock(type="text", text="hello")]
    await agent.prompt(prompt, sessions[0])
    opened[0].failed = True

    for session in (*sessions, sessions[0]):
        assert (await agent.prompt(prompt, session)).stop_reason == "end_turn"

    assert [model.closed for model in opened] == [True, False]
    assert sum("three" in str(message) for message in posted) == 1
    await agent.aclose()
    assert [model.closed for model in opened] == [True, True]
