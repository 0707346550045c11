"""Why a run stands where it stands: the same rules that explain a delivery."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tenure.errors import NotFound
from tenure.outbox.explaining import surroundings
from tenure.outbox.waiting import why_waits

if TYPE_CHECKING:
    from tenure.outbox.waiting import Standing, Waits
    from tenure.store.tx import Tx

__all__ = ["why"]

_FACTS: Final = (
    "SELECT w.*, l.state AS lane_state, l.reason AS lane_reason, l.breaker_until,"
    " l.concurrency, l.rate_per_second, l.tat, l.half_open, l.needs,"
    " CAST(NULL AS text) AS disabled_why, :no AS disabled, n.name AS holder,"
    " n.beat_at AS holder_beat_at, n.state AS holder_state, n.closed_why AS holder_why"
    " FROM work w JOIN lane l ON l.id = w.lane"
    " LEFT JOIN node n ON n.id = w.claimed_by WHERE w.id = :work"
)


def why(tx: Tx, work: str, standing: Standing) -> Waits:
    """Explain the work of a run. Raises NotFound where it has none any more."""
    row = tx.first(_FACTS, {"work": work, "no": False})
    if row is None:
        raise NotFound(f"work {work} is not kept any more")
    (about,) = surroundings(tx, [row], standing)
    found = why_waits(row, about)
    return replace(found, why=_of_job(found.why), rule=_of_job(found.rule))


def _of_job(text: str) -> str:
    """Say of a job what the rules say of an endpoint: both are lanes."""
    said = text.replace("the receiver took it", "it returned")
    return said.replace("2xx succeeds", "a job that returns has succeeded").replace(
        "endpoint", "job"
    )
