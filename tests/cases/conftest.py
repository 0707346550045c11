"""The pieces that the cases share with the modules' own tests."""

from tests.outbox.conftest import outbox, ring, settings
from tests.work.conftest import rig

__all__ = ["outbox", "rig", "ring", "settings"]
