from __future__ import annotations

import pytest

from tenure.store.backend import Backend
from tests.store.yard import Yard


@pytest.fixture
def yard(backend: Backend) -> Yard:
    """The verbs over a fresh database: SQLite, then PostgreSQL."""
    return Yard(backend)
