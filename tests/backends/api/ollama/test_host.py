"""OLLAMA_HOST in all its forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.catalog.discovery import DEFAULT_URL, adding_command, ollama_url
from shepherd.config.provider import make_provider


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", DEFAULT_URL),
        ("0.0.0.0", DEFAULT_URL),
        ("::", DEFAULT_URL),
        ("[::]:11434", DEFAULT_URL),
        (":8000", "http://127.0.0.1:8000"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("box", "http://box:11434"),
        ("box:8000", "http://box:8000"),
        (' "box" ', "http://box:11434"),
        ("box:99999", "http://box:11434"),
        ("http://box:8000", "http://box:8000"),
        ("http://box", "http://box:80"),
        ("https://box/", "https://box:443"),
        ("HTTPS://box:1/behind/", "https://box:1/behind"),
        ("::1", "http://[::1]:11434"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_forms(text: str, url: str) -> None:
    assert ollama_url({"OLLAMA_HOST": text}) == url
    assert make_provider("x", {"type": "ollama", "base_url": url}).base_url == url


def test_the_usual_address_without_it() -> None:
    assert ollama_url({}) == DEFAULT_URL


@given(st.text())
def test_whatever_it_says_is_read(text: str) -> None:
    assert ollama_url({"OLLAMA_HOST": text}).startswith(("http://", "https://"))


def test_the_command_names_an_address_that_is_not_the_usual_one() -> None:
    assert adding_command(DEFAULT_URL, "qwen3:8b").endswith("--type ollama --model qwen3:8b")
    assert "--base-url http://box:1 --model 'a b'" in adding_command("http://box:1", "a b")
