"""What the server needs of an engine, and nothing more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tenure.clock import Clock
from tenure.config import Settings
from tenure.engine import Health
from tenure.errors import Draining, InvariantViolated, QueueFull
from tenure.inbox.inbox import Inbox
from tenure.limits import LISTENERS_MAX
from tenure.outbox.outbox import Outbox
from tenure.server.bounds import body_bound
from tenure.store.backend import Backend

if TYPE_CHECKING:
    from tenure.schedules.schedules import Schedules
    from tenure.telemetry.events import Events
    from tenure.telemetry.metrics import Metrics


class Serves(Protocol):
    """The side of `tenure.engine.Engine` that HTTP reaches."""

    @property
    def settings(self) -> Settings:
        """What the deployment says."""
        ...

    @property
    def clock(self) -> Clock:
        """The door to time."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The outbox, once started."""
        ...

    @property
    def inbox(self) -> Inbox:
        """The inbox, once started."""
        ...

    @property
    def schedules(self) -> Schedules:
        """Jobs and runs, once started."""
        ...

    @property
    def backend(self) -> Backend:
        """The database, once started."""
        ...

    @property
    def events(self) -> Events:
        """Writes log lines and counts them."""
        ...

    @property
    def metrics(self) -> Metrics | None:
        """What this node counts; None when it is no node."""
        ...

    def health(self) -> Health:
        """How this process is."""
        ...


class Listeners:
    """How many listeners wait here; one more than may is refused."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        """Count one more. Raises QueueFull."""
        if self.count >= LISTENERS_MAX:
            raise QueueFull(f"{LISTENERS_MAX} listeners wait here already")
        self.count += 1

    def __exit__(self, *_: object) -> None:
        """Count one less."""
        self.count -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts of one engine, looked up at each request.

    An application may be mounted before its engine starts; until then, everything that
    needs the engine is refused as Draining (503).
    """

    engine: Serves
    listeners: Listeners = field(default_factory=Listeners)

    @property
    def outbox(self) -> Outbox:
        """The outbox. Raises Draining before the start."""
        try:
            return self.engine.outbox
        except InvariantViolated:
            raise _not_started() from None

    @property
    def inbox(self) -> Inbox:
        """The inbox. Raises Draining before the start."""
        try:
            return self.engine.inbox
        except InvariantViolated:
            raise _not_started() from None

    @property
    def schedules(self) -> Schedules:
        """Jobs and runs. Raises Draining before the start."""
        try:
            return self.engine.schedules
        except InvariantViolated:
            raise _not_started() from None

    @property
    def backend(self) -> Backend:
        """The database. Raises Draining before the start."""
        try:
            return self.engine.backend
        except InvariantViolated:
            raise _not_started() from None

    @property
    def clock(self) -> Clock:
        """The door to time."""
        return self.engine.clock

    @property
    def off(self) -> str | None:
        """Why nothing is sent although work is accepted; None when it is."""
        if not self.engine.settings.sending:
            return "off by deployment policy"
        return self.engine.health().off

    @property
    def body_bytes_max(self) -> int:
        """Most bytes of a request body."""
        return body_bound(self.engine.settings.payload_max_bytes)


def _not_started() -> Draining:
    return Draining("This node has not started yet: come back in a moment")
