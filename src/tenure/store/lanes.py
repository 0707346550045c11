"""Lanes and their fair-share groups: what work queues for, and what it may not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import InvariantViolated
from tenure.ids import LaneId, TenantId
from tenure.limits import LANE_GROUP_BITS
from tenure.store import schema

if TYPE_CHECKING:
    from tenure.store.tx import AnyRow, Tx

CHANGEABLE: Final = frozenset(
    {
        "state",
        "reason",
        "deadline_us",
        "concurrency",
        "rate_per_second",
        "ordered",
        "order_policy",
        "skip_after",
        "breaker_until",
        "half_open",
        "at_most_once",
        "needs",
    }
)


def add_group(tx: Tx, tenant: TenantId) -> int:
    """Make a fair-share group (one for each application) and return its number."""
    group: int = tx.scalar(
        sa.insert(schema.lane_group)
        .values(tenant=tenant)
        .returning(schema.lane_group.c.id)
    )
    return group


def add_lane(
    tx: Tx,
    *,
    group: int,
    kind: str,
    tenant: TenantId,
    subject: str,
    needs: str,
    deadline_us: int,
    settings: Mapping[str, Any] | None = None,
) -> LaneId:
    """Make a lane in a group; `settings` are columns that `change_lane` may change.

    Raises InvariantViolated for an unknown group, setting, or when the group is full.
    """
    number = tx.scalar(
        "UPDATE lane_group SET next_lane = next_lane + 1 WHERE id = :group"
        " RETURNING next_lane - 1",
        {"group": group},
    )
    if number is None:
        raise InvariantViolated(f"lane group {group} does not exist")
    if number >> LANE_GROUP_BITS:
        raise InvariantViolated(f"lane group {group} is full: make another group")
    lane = LaneId((group << LANE_GROUP_BITS) | number)
    tx.insert(
        schema.lane,
        [
            {
                "id": lane,
                "kind": kind,
                "tenant": tenant,
                "subject": subject,
                "needs": needs,
                "deadline_us": deadline_us,
                "created_at": tx.now,
                **_known(settings or {}),
            }
        ],
    )
    return lane


def change_lane(tx: Tx, lane: LaneId, **changes: Any) -> int:
    """Change a lane and raise its version; return the new version.

    Raises InvariantViolated for a column that is not a setting or an unknown lane.
    """
    version: int | None = tx.scalar(
        sa.update(schema.lane)
        .where(schema.lane.c.id == lane)
        .values(**_known(changes), version=schema.lane.c.version + 1)
        .returning(schema.lane.c.version)
    )
    if version is None:
        raise InvariantViolated(f"lane {lane} does not exist")
    return version


def unblock_lane(tx: Tx, lane: LaneId) -> None:
    """Open a lane that its own setting had stopped; any other stays as it is."""
    tx.run(
        "UPDATE lane SET state = 'open', reason = NULL, version = version + 1"
        " WHERE id = :lane AND state = 'blocked'",
        {"lane": lane},
    )


def lane_row(tx: Tx, lane: LaneId) -> AnyRow | None:
    """Return the stored lane, None when there is none."""
    return tx.first(sa.select(schema.lane).where(schema.lane.c.id == lane))


def _known(changes: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(changes) - CHANGEABLE)
    if unknown:
        raise InvariantViolated(f"no lane setting is named {', '.join(unknown)}")
    return dict(changes)
