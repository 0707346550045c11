"""What tests of applications that send with Tenure need: receivers that are real."""

from tenure.testing.receivers import Received, Receiver, Reply, receiving

__all__ = ["Received", "Receiver", "Reply", "receiving"]
