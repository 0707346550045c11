"""Lanes as a claim reads them: without a lock, or locked by id past those of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.ids import LaneId
from tenure.kernel.lanes import Limits

if TYPE_CHECKING:
    from tenure.store.tx import Tx

LANE_COLUMNS: Final = (
    "l.id, l.subject, l.version, l.deadline_us, l.concurrency, l.rate_per_second,"
    " l.tat, l.half_open, l.state, l.needs, l.breaker_until, l.ordered"
)
"""What `as_view` expects, in its order."""


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """A lane as a claim reads it."""

    id: LaneId
    subject: str
    version: int
    deadline_us: int
    limits: Limits
    state: str
    needs: str
    breaker_until: int | None
    ordered: bool


def as_view(row: Sequence[Any]) -> LaneView:
    """Build a lane from the columns of `LANE_COLUMNS`."""
    return LaneView(
        id=row[0],
        subject=row[1],
        version=row[2],
        deadline_us=row[3],
        limits=Limits(
            concurrency=row[4],
            rate_per_second=row[5],
            tat=row[6],
            half_open=bool(row[7]),
        ),
        state=row[8],
        needs=row[9],
        breaker_until=row[10],
        ordered=bool(row[11]),
    )


def is_open(view: LaneView, now: int) -> bool:
    """Whether a lane lets anything start."""
    closed_by_breaker = view.breaker_until is not None and view.breaker_until > now
    return view.state == "open" and not closed_by_breaker


def read_lanes(tx: Tx, lanes: Sequence[LaneId]) -> dict[LaneId, LaneView]:
    """Return lanes by id; rows whose lane is unknown are served by nobody."""
    return _view_lanes(tx, lanes, lock="")


def lock_lanes(tx: Tx, lanes: Sequence[LaneId]) -> dict[LaneId, LaneView]:
    """Lock lanes by id, passing over those locked by others; return them as of now."""
    postgresql = tx.dialect == "postgresql"
    lock = " FOR NO KEY UPDATE OF l SKIP LOCKED" if postgresql else ""
    return _view_lanes(tx, lanes, lock=lock)


def _view_lanes(
    tx: Tx, lanes: Sequence[LaneId], *, lock: str
) -> dict[LaneId, LaneView]:
    if not lanes:
        return {}
    asked, params = tx.rows(
        "b", {"id": "bigint"}, [(lane,) for lane in sorted(set(lanes))]
    )
    found = tx.all(
        f"SELECT {LANE_COLUMNS} FROM {asked} JOIN lane l ON l.id = b.id"
        f" ORDER BY l.id{lock}",
        params,
    )
    return {row[0]: as_view(row) for row in found}
