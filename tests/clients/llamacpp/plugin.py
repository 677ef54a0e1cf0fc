"""A plugin of pytest for llama.cpp's own tests: nothing is downloaded, no request waits long."""

import importlib
import sys
import types
from typing import Any

import pytest
from requests.structures import CaseInsensitiveDict

SECONDS = 30
DRAFT_MODEL = "/stories15M-q4_0.gguf"


def _no_network(address: str, **_: object) -> None:
    """Stand in for a download: only the name of a draft model is needed."""
    if not address.endswith(DRAFT_MODEL):
        pytest.fail("the test downloads a file")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Replace the package that downloads files, before the tests import it."""
    wget = types.ModuleType("wget")
    wget.__dict__["download"] = _no_network
    sys.modules["wget"] = wget


def pytest_configure() -> None:
    """Load no model of the hub, and limit the time of a request."""
    utils: Any = importlib.import_module("utils")  # the module beside llama.cpp's tests
    utils.ServerPreset.load_all = staticmethod(_load_nothing)
    utils.DEFAULT_REQUEST_TIMEOUT = SECONDS
    utils.DEFAULT_HTTP_TIMEOUT = SECONDS
    request = utils.ServerProcess.make_request

    def make_request(
        server: Any, method: str, path: str, data: Any = None, *args: Any, **options: Any
    ) -> Any:
        """A request, the names of whose answer's headers have no case, as in HTTP.

        `--verbose`, an option of llama.cpp's server, is one of each request here.
        """
        if server.debug and path.endswith("/chat/completions"):
            data = {"verbose": True, **data}
        answer = request(server, method, path, data, *args, **options)
        answer.headers = CaseInsensitiveDict(answer.headers)
        return answer

    utils.ServerProcess.make_request = make_request


def _load_nothing() -> None:
    """Stand in for the download of all models."""
