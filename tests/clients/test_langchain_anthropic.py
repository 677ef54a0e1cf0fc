"""LangChain's standard tests of `ChatAnthropic`."""

from typing import Any

import pytest

from tests.clients.assistant import HELLO
from tests.clients.langchain import LocalFiles
from tests.clients.page import example
from tests.clients.serving import Server

suites: Any = pytest.importorskip(
    "langchain_tests.integration_tests", reason="langchain-tests is not installed"
)
langchain: Any = pytest.importorskip(
    "langchain_anthropic", reason="langchain-anthropic is not installed"
)


@pytest.mark.client("langchain-anthropic", "Messages")
class TestMessages(LocalFiles, suites.ChatModelIntegrationTests):
    """The standard tests with the address on the page.

    Skipped are audio, JSON mode and recorded calls. `test_anthropic_inputs` is skipped too: its
    thinking is signed by Anthropic, and only this server's signatures are valid.
    """

    @pytest.fixture(autouse=True)
    def _address(self, server: Server) -> None:
        self.names = example("langchain-anthropic", server.url)

    @property
    def chat_model_class(self) -> Any:
        return langchain.ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "default", **self.names["address"]}

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "other"

    def test_the_model_of_the_page(self) -> None:
        assert self.names["chat"].invoke("Hi").text == HELLO
