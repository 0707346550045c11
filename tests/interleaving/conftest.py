"""The pieces that interleavings share with the modules' own tests."""

from tests.store.conftest import yard
from tests.work.conftest import rig

__all__ = ["rig", "yard"]
