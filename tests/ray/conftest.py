"""These tests start real Ray; they are skipped where it is not installed."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec import structs

from shepherd.config.paths import Paths
from shepherd.server.access.key import KeyScope
from shepherd.server.access.keys import KeyStore
from tests.ray.deployment import LONG_PATIENCE, Deployment, deployed

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """They take minutes and much memory, so they run only if a command names them."""
    named = any("tests/ray" in str(argument) for argument in config.invocation_params.args)
    reason = "Ray is not installed: make test-ray" if named else "takes long: make test-ray"
    skipped = pytest.mark.skip(reason=reason)
    for item in items:
        if item.nodeid.startswith("tests/ray/"):
            item.add_marker(pytest.mark.timeout(4 * LONG_PATIENCE))
            if find_spec("ray") is None or not named:
                item.add_marker(skipped)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def keys(home: Path) -> KeyStore:
    path = Paths.from_env({"HOME": str(home)}).keys_file
    path.parent.mkdir(parents=True)
    return KeyStore(path)


@pytest.fixture(scope="module")
def admin(keys: KeyStore) -> str:
    """A key with all scopes."""
    return keys.add("all", lambda entry: structs.replace(entry, scopes=frozenset(KeyScope)))


@pytest.fixture(scope="module")
def deployment(home: Path, admin: str) -> Iterator[Deployment]:
    """Three replicas with keys."""
    with deployed(home, "--replicas", "3", "--auth-mode", "json", key=admin) as running:
        yield running
