"""The receiver of a running server, for tests of a service in this process."""

from tests.server.running import sink

__all__ = ["sink"]
