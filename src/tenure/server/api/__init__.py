"""The API's routes, one file per noun."""

from functools import cache

from fastapi import APIRouter

from tenure.server.api import (
    applications,
    attempts,
    doctor,
    endpoints,
    eventtypes,
    health,
    jobs,
    keys,
    listening,
    messages,
    nodes,
    receipts,
    runs,
    sources,
    tasks,
)

__all__ = ["routers"]


@cache
def routers() -> tuple[APIRouter, ...]:
    """Return every router, in the order in which paths are matched.

    Made once: they hold nothing of one application, and reading their signatures takes
    half a second.
    """
    return (
        health.router(),
        applications.router(),
        endpoints.router(),
        messages.router(),
        attempts.router(),
        eventtypes.router(),
        sources.router(),
        listening.router(),
        receipts.router(),
        jobs.router(),
        runs.router(),
        keys.router(),
        nodes.router(),
        tasks.router(),
        doctor.router(),
    )
