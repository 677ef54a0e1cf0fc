"""Each row of docs/clients.md has its test and its settings, and each test its row."""

from pathlib import Path

import pytest

from tests.clients.models import ENGINE_CONTEXT
from tests.clients.page import PAGE, block, marks, rows, sections
from tests.clients.versions import with_versions

HERE = Path(__file__).parent
MARKED = {
    (client, api, path.name) for path in HERE.glob("test_*.py") for client, api in marks(path)
}


def test_rows_and_tests_are_the_same() -> None:
    table = [(client, api, Path(link).name) for client, api, link in rows()]
    assert len(table) == len(set(table))
    assert set(table) == MARKED
    assert len({client for client, _, _ in table}) >= 17


@pytest.mark.parametrize("client", sorted({client for client, _, _ in MARKED}))
def test_a_client_has_settings_that_name_the_server(client: str) -> None:
    assert client in sections()
    languages = ("python", "bash", "javascript")
    assert any(f"```{language}\n" in sections()[client] for language in languages)
    assert "127.0.0.1:8000" in sections()[client]


def test_the_address_of_the_page_is_replaced() -> None:
    assert block("openai", "python", "http://[::1]:1").count("http://[::1]:1/v1") == 1


def test_the_context_is_that_of_the_tests() -> None:
    assert f"{ENGINE_CONTEXT:,}" in sections()["Coding agents"]


def test_versions_are_written_into_the_rows_that_ran() -> None:
    text = PAGE.read_text("utf-8")
    changed = with_versions(text, {("openai", "Chat"): "99.9"})
    [line] = set(changed.splitlines()) - set(text.splitlines())
    assert line.startswith("| [openai](#openai) | Chat | 99.9 | `base_url` with `/v1` | [test]")


def test_a_row_without_a_test_is_seen() -> None:
    line = "| [x](#x) | Chat | 1.0 | `y` | [test](../tests/clients/test_none.py) |\n"
    assert ("x", "Chat", "../tests/clients/test_none.py") in rows(PAGE.read_text("utf-8") + line)
