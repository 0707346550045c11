"""The fixtures of a running server, for the checks of the Svix API."""

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
