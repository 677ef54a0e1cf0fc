from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shepherd.tools.layer.layer import Layer


@pytest.fixture
def make_layer(tmp_path: Path) -> Iterator[Callable[[Path], Layer]]:
    """Makes layers that are dropped at the end."""
    with ExitStack() as resources:

        def make(root: Path) -> Layer:
            layer = Layer(tmp_path / "layers", root)
            resources.callback(layer.drop)
            return layer

        yield make
