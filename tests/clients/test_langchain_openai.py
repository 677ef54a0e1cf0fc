"""LangChain's standard tests of `ChatOpenAI` over both APIs, and its embeddings."""

from typing import Any, ClassVar

import pytest

from tests.clients.assistant import HELLO
from tests.clients.langchain import LocalFiles
from tests.clients.page import example
from tests.clients.serving import Server

suites: Any = pytest.importorskip(
    "langchain_tests.integration_tests", reason="langchain-tests is not installed"
)
langchain: Any = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")


class Suite(LocalFiles, suites.ChatModelIntegrationTests):
    """The standard tests with the address on the page.

    Skipped are audio, Anthropic's contents and recorded calls.
    """

    extra: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _address(self, server: Server) -> None:
        self.address = example("langchain-openai", server.url)["address"]

    @property
    def chat_model_class(self) -> Any:
        return langchain.ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**self.address, **self.extra}

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "other"

    @property
    def supports_json_mode(self) -> bool:
        return True


@pytest.mark.client("langchain-openai", "Chat")
class TestChat(Suite):
    """Over chat completions."""

    extra: ClassVar[dict[str, Any]] = {"stream_usage": True}


@pytest.mark.client("langchain-openai", "Responses")
class TestResponses(Suite):
    """Over the Responses API."""

    extra: ClassVar[dict[str, Any]] = {"use_responses_api": True}


@pytest.mark.client("langchain-openai", "Embeddings")
def test_the_models_of_the_page(server: Server) -> None:
    names = example("langchain-openai", server.url)
    assert names["chat"].invoke("Hi").text == names["responses"].invoke("Hi").text == HELLO
    first, same, other = names["embeddings"].embed_documents(["a", "a", "b"])
    assert first == same != other
