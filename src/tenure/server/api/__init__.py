"""The API's routes, one file per noun."""

from fastapi import APIRouter

from tenure.server.api import (
    applications,
    attempts,
    endpoints,
    event_types,
    health,
    keys,
    messages,
    nodes,
)

__all__ = ["routers"]


def routers() -> tuple[APIRouter, ...]:
    """Return every router, in the order in which paths are matched."""
    return (
        health.router(),
        applications.router(),
        endpoints.router(),
        messages.router(),
        attempts.router(),
        event_types.router(),
        keys.router(),
        nodes.router(),
    )
