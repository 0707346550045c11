from collections.abc import Iterator

import pytest

from tenure.testing.receivers import Receiving, receiving
from tests.cli.rig import Served, serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for every test that needs no server of its own."""
    with serving(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Receiving]:
    with receiving() as one:
        yield one
