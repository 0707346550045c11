"""What the overview shows, read in one snapshot and only of one tenant.

The counts come from one pass over the tenant's work rows; `work` has no index by tenant
and gets none for a page, so an overview is kept for `OVERVIEW_CACHE_SECONDS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from tenure.ids import AppId, TenantId
from tenure.limits import LANE_GROUP_BITS
from tenure.outbox.tables import application, delivery, endpoint, message
from tenure.store import nodes
from tenure.store.nodes import NodeRow, is_heard
from tenure.store.schema import lane, work
from tenure.store.tx import Tx

MESSAGES_SHOWN: Final = 25
ENDPOINTS_SHOWN: Final = 50
TROUBLES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Whose rows are shown: a tenant's, or those of one of its applications."""

    tenant: TenantId
    app: AppId | None = None
    lanes: tuple[int, int] | None = None
    """First and last lane id of that application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows by how they stand; `later` and `asleep` wait for an instant or an event."""

    accepted: int = 0
    due: int = 0
    later: int = 0
    asleep: int = 0
    in_flight: int = 0
    delivered: int = 0
    dead: int = 0
    parked: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFigures:
    """One endpoint: how its lane stands, and what waits in it."""

    id: str
    app: str
    app_name: str
    url: str
    lane_state: str
    reason: str | None
    disabled: bool
    breaker_until: int | None
    due: int
    later: int
    in_flight: int
    dead: int
    parked: int
    next_due_at: int | None

    @property
    def waiting(self) -> int:
        """Rows that have not been sent yet."""
        return self.due + self.later


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFigures:
    """One message and how many of its deliveries stand where."""

    id: str
    app: str
    app_name: str
    event_type: str
    event_id: str | None
    created_at: int
    states: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A row that will not go on by itself, and why."""

    message: str
    app: str
    state: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything that the first page shows."""

    now: int
    counts: Counts
    nodes: Sequence[NodeRow]
    endpoints: Sequence[EndpointFigures]
    endpoints_total: int
    messages: Sequence[MessageFigures]
    troubles: Sequence[Trouble]
    applications: int

    @property
    def at_work(self) -> bool:
        """Whether a node that takes work has been heard lately."""
        return any(node.state == "open" and self.heard(node) for node in self.nodes)

    def heard(self, node: NodeRow) -> bool:
        """Whether this node has been heard lately."""
        return is_heard(node.beat_at, self.now)


def reach_of(tx: Tx, tenant: TenantId, app: AppId | None) -> Reach:
    """Return whose rows a key may see."""
    if app is None:
        return Reach(tenant=tenant)
    group: int | None = tx.scalar(
        sa.select(application.c.lane_group).where(
            application.c.tenant == tenant, application.c.id == app
        )
    )
    first = (group or 0) << LANE_GROUP_BITS
    return Reach(
        tenant=tenant, app=app, lanes=(first, first | (1 << LANE_GROUP_BITS) - 1)
    )


def read_overview(tx: Tx, tenant: TenantId, app: AppId | None) -> Overview:
    """Return the overview of a tenant, or of one of its applications."""
    reach = reach_of(tx, tenant, app)
    tallies = _tallies(tx, reach)
    counts = _counts(tallies, _accepted(tx, reach))
    endpoints = _endpoints(tx, reach, tallies)
    endpoints.sort(key=lambda found: (-found.waiting - found.in_flight, found.id))
    stuck = counts.parked + counts.dead
    return Overview(
        now=tx.now,
        counts=counts,
        nodes=nodes.list_nodes(tx),
        endpoints=endpoints[:ENDPOINTS_SHOWN],
        endpoints_total=len(endpoints),
        messages=_messages(tx, reach),
        troubles=_troubles(tx, reach) if stuck else (),
        applications=_applications(tx, reach),
    )


Tally = Mapping[tuple[int, str, str | None], tuple[int, int | None]]


def _of(reach: Reach) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = [work.c.tenant == reach.tenant]
    if reach.lanes is not None:
        found.append(work.c.lane.between(*reach.lanes))
    return found


def _tallies(tx: Tx, reach: Reach) -> Tally:
    found = tx.all(
        sa.select(
            work.c.lane,
            work.c.state,
            work.c.phase,
            sa.func.count().label("n"),
            sa.func.min(work.c.due_at).label("next_due_at"),
        )
        .where(*_of(reach))
        .group_by(work.c.lane, work.c.state, work.c.phase)
    )
    return {(row.lane, row.state, row.phase): (row.n, row.next_due_at) for row in found}


def _counts(tallies: Tally, accepted: int) -> Counts:
    def total(state: str, phase: str | None = None) -> int:
        return sum(
            n for (_, s, p), (n, _) in tallies.items() if s == state and p == phase
        )

    return Counts(
        accepted=accepted,
        due=total("ready", "due"),
        later=total("ready", "later"),
        asleep=total("ready", "asleep"),
        in_flight=total("claimed"),
        delivered=total("succeeded"),
        dead=total("dead"),
        parked=total("parked"),
        cancelled=total("cancelled"),
    )


def _accepted(tx: Tx, reach: Reach) -> int:
    stmt = sa.select(sa.func.count()).where(message.c.tenant == reach.tenant)
    if reach.app is not None:
        stmt = stmt.where(message.c.app == reach.app)
    found: int = tx.scalar(stmt)
    return found


def _applications(tx: Tx, reach: Reach) -> int:
    found: int = tx.scalar(
        sa.select(sa.func.count()).where(
            application.c.tenant == reach.tenant, application.c.deleted_at.is_(None)
        )
    )
    return found


def _endpoints(tx: Tx, reach: Reach, tallies: Tally) -> list[EndpointFigures]:
    stmt = (
        sa.select(
            endpoint.c.id,
            endpoint.c.app,
            endpoint.c.url,
            endpoint.c.disabled,
            endpoint.c.disabled_why,
            endpoint.c.lane,
            application.c.name.label("app_name"),
            lane.c.state,
            lane.c.reason,
            lane.c.breaker_until,
        )
        .join(application, application.c.id == endpoint.c.app)
        .join(lane, lane.c.id == endpoint.c.lane)
        .where(endpoint.c.tenant == reach.tenant, endpoint.c.deleted_at.is_(None))
    )
    if reach.app is not None:
        stmt = stmt.where(endpoint.c.app == reach.app)

    return [_endpoint(row, tallies) for row in tx.all(stmt)]


def _endpoint(row: Any, tallies: Tally) -> EndpointFigures:
    def count(state: str, phase: str | None = None) -> int:
        return tallies.get((row.lane, state, phase), (0, None))[0]

    return EndpointFigures(
        id=row.id,
        app=row.app,
        app_name=row.app_name,
        url=row.url,
        lane_state=row.state,
        reason=row.disabled_why or row.reason,
        disabled=row.disabled,
        breaker_until=row.breaker_until,
        due=count("ready", "due"),
        later=count("ready", "later") + count("ready", "asleep"),
        in_flight=count("claimed"),
        dead=count("dead"),
        parked=count("parked"),
        next_due_at=tallies.get((row.lane, "ready", "later"), (0, None))[1],
    )


def _messages(tx: Tx, reach: Reach) -> list[MessageFigures]:
    stmt = (
        sa.select(
            message.c.id,
            message.c.app,
            message.c.event_type,
            message.c.event_id,
            message.c.created_at,
            application.c.name.label("app_name"),
        )
        .join(application, application.c.id == message.c.app)
        .where(message.c.tenant == reach.tenant)
        .order_by(message.c.id.desc())
        .limit(MESSAGES_SHOWN)
    )
    if reach.app is not None:
        stmt = stmt.where(message.c.app == reach.app)
    found = tx.all(stmt)
    states = _states(tx, [row.id for row in found])
    return [
        MessageFigures(
            id=row.id,
            app=row.app,
            app_name=row.app_name,
            event_type=row.event_type,
            event_id=row.event_id,
            created_at=row.created_at,
            states=states.get(row.id, {}),
        )
        for row in found
    ]


def _states(tx: Tx, messages: Sequence[str]) -> dict[str, dict[str, int]]:
    if not messages:
        return {}
    found: dict[str, dict[str, int]] = {}
    for row in tx.all(
        sa.select(delivery.c.message, work.c.state, sa.func.count().label("n"))
        .join(work, work.c.id == delivery.c.work)
        .where(delivery.c.message.in_(messages))
        .group_by(delivery.c.message, work.c.state)
    ):
        found.setdefault(row.message, {})[row.state] = row.n
    return found


def _troubles(tx: Tx, reach: Reach) -> list[Trouble]:
    found = tx.all(
        sa.select(work.c.subject, work.c.state, work.c.reason, message.c.app)
        .join(message, message.c.id == work.c.subject)
        .where(*_of(reach), work.c.state.in_(["parked", "dead"]))
        .order_by(work.c.settled_at.desc(), work.c.id.desc())
        .limit(TROUBLES_SHOWN)
    )
    return [
        Trouble(message=row.subject, app=row.app, state=row.state, reason=row.reason)
        for row in found
    ]
