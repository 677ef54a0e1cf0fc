"""Which models are known to see, and which not to."""

from pathlib import Path

import pytest

from shepherd.config.modeldb import model_facts


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        ("gpt-5-mini", True),
        ("openai/gpt-4o", True),
        ("gpt-4", False),
        ("o3-mini", False),
        ("gpt-oss:20b", False),
        ("claude-sonnet-4-5", True),
        ("gemini-2.5-pro", True),
        ("gemma3:1b", False),
        ("grok-3", False),
        ("grok-4", True),
        ("deepseek-chat", False),
        ("deepseek-vl2", None),
        ("qwen3-vl:8b", True),
        ("qwen2.5-vl-72b-instruct", True),
        ("qwen3-coder:30b", False),
        ("qwen3.5:9b", None),
        ("llama3.1:8b", False),
        ("llama3.2-vision:11b", True),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", True),
        ("llama4", True),
        ("kimi-k2-0905", False),
        ("kimi-k2.5", True),
        ("llava:13b", True),
        ("nobody/knows-this", None),
    ],
)
def test_vision_is_true_false_or_not_known(tmp_path: Path, model: str, sees: object) -> None:
    assert model_facts(model, tmp_path / "models.toml").vision is sees
