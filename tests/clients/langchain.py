"""Pictures and documents for LangChain's standard tests, which load them from the internet."""

from types import SimpleNamespace

import pytest

from tests.pictures import png
from tests.server.test_documents import REPORT


class LocalFiles:
    """The tests of pictures and documents, with files of our own."""

    supports_image_inputs = True
    supports_image_tool_message = True
    supports_pdf_inputs = True
    supports_pdf_tool_message = True

    @pytest.fixture(autouse=True)
    def _files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def get(url: str, **_: object) -> SimpleNamespace:
            return SimpleNamespace(content=REPORT if url.endswith(".pdf") else png(8, 8))

        monkeypatch.setattr("httpx.get", get)
