from __future__ import annotations

from typing import Any

import pytest

from tenure.errors import InvariantViolated
from tenure.work.kinds import seal
from tests.work.rig import Probe


def test_a_sealed_registry_finds_kinds_by_name_and_cannot_change() -> None:
    probe = Probe()
    kinds: Any = seal([probe])
    assert kinds["probe"] is probe
    with pytest.raises(TypeError):
        kinds["other"] = probe


def test_two_kinds_of_one_name_are_refused() -> None:
    with pytest.raises(InvariantViolated, match="'probe'"):
        seal([Probe(), Probe()])
