"""What tests of applications that send with Tenure need: receivers and time that obey."""

from typing import TYPE_CHECKING

from tenure.testing.receivers import Received, Receiver, Reply, receiving

if TYPE_CHECKING:
    from tenure.testing.virtual import VirtualEngine

__all__ = ["Received", "Receiver", "Reply", "VirtualEngine", "receiving"]


def __getattr__(name: str) -> object:
    """Load the engine for who asks for it only: a receiver needs none of it."""
    if name == "VirtualEngine":
        from tenure.testing.virtual import VirtualEngine

        return VirtualEngine
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
