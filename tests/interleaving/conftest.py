"""The pieces that interleavings share with the store's own tests."""

from tests.store.conftest import yard

__all__ = ["yard"]
