"""What tests of applications that send with Tenure need: receivers and time that obey."""

from tenure.testing.receivers import Received, Receiver, Reply, receiving
from tenure.testing.virtual import VirtualEngine

__all__ = ["Received", "Receiver", "Reply", "VirtualEngine", "receiving"]
