"""The fixtures of a running server, for every test of this folder."""

from tests.server.running import (
    app,
    client,
    other,
    service,
    service_dialect,
    service_settings,
    sink,
)

__all__ = [
    "app",
    "client",
    "other",
    "service",
    "service_dialect",
    "service_settings",
    "sink",
]
