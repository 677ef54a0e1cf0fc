"""What a model takes is told by its name."""

import pytest

from shepherd.backends.api.anthropic.dialect import Dialect, Off, dialect_of


@pytest.mark.parametrize(
    ("same", "names"),
    [
        (
            "claude-opus-4-1",
            ["claude-opus-4-1-20250805", "claude-opus-4-1@20250805", "anthropic/claude-opus-4.1"],
        ),
        ("claude-opus-4-0", ["claude-opus-4-20250514", "anthropic.claude-opus-4-20250514-v1:0"]),
        ("claude-3-5-haiku", ["claude-3-5-haiku-20241022", "claude-3.5-haiku", "claude-haiku-3-5"]),
        ("claude-opus-5-5", ["us.anthropic.claude-opus-5-5", "claude-opus-6", "claude-new-7-1"]),
        ("claude-mythos-5", ["claude-mythos-preview", "claude-fable-5"]),
    ],
)
def test_spellings_and_dates_make_no_difference(same: str, names: list[str]) -> None:
    assert [dialect_of(name) for name in names] == [dialect_of(same)] * len(names)


@pytest.mark.parametrize("name", ["", "gpt-oss-20b", "qwen3.5-9b.gguf", "claude", "claude-3"])
def test_a_model_that_is_not_claude_gets_what_the_api_always_had(name: str) -> None:
    assert dialect_of(name) == Dialect()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-3-7-sonnet-latest", (False, Off.UNSAID, True)),
        ("claude-haiku-4-5", (False, Off.UNSAID, True)),
        ("claude-sonnet-4-6", (True, Off.UNSAID, True)),
        ("claude-opus-4-8", (True, Off.UNSAID, True)),
        ("claude-opus-5", (True, Off.DISABLED, True)),
        ("claude-sonnet-5", (True, Off.DISABLED, True)),
        ("claude-fable-5", (True, Off.NEVER, True)),
        ("claude-fable-5-1", (True, Off.NEVER, False)),
        ("claude-opus-5-5", (True, Off.NEVER, False)),
        ("claude-sonnet-5-5", (True, Off.BETWEEN_TOOLS, False)),
        ("claude-haiku-5-5", (True, Off.DISABLED, True)),
    ],
)
def test_generations_think_and_call_differently(
    name: str, expected: tuple[bool, Off, bool]
) -> None:
    dialect = dialect_of(name)
    assert (dialect.adaptive, dialect.off, dialect.forced_calls) == expected


def test_sampling_ended_and_binding_began_with_a_generation() -> None:
    assert dialect_of("claude-sonnet-4-6").sampling
    assert not dialect_of("claude-opus-4-7").sampling
    assert not dialect_of("claude-opus-5").bound
    assert dialect_of("claude-fable-5-1").bound
    assert not dialect_of("claude-opus-4").one_sampler
    assert dialect_of("claude-opus-4-1").one_sampler


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("claude-3-opus-20240229", 4096),
        ("claude-3-5-haiku-latest", 8192),
        ("claude-3-7-sonnet-latest", 64_000),
        ("claude-opus-4-1", 32_000),
        ("claude-opus-4-5", 64_000),
        ("claude-sonnet-5-5", 128_000),
    ],
)
def test_the_most_that_a_generation_writes(name: str, limit: int) -> None:
    assert dialect_of(name).output_limit == limit
