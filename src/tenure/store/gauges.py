"""What a metrics page says of the database, at a cost that does not grow with it.

Nothing is counted as a whole: at most `GAUGE_LANES` lanes with due rows are visited by
the same skip scan that claims use, at most `GAUGE_ROWS` rows of each are counted, and
the oldest is the first entry of the index in each priority. Claimed rows are as many as
nodes have slots. Whoever asks often keeps the answer for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.limits import GAUGE_LANES, GAUGE_ROWS
from tenure.store.claims.walking import Places, walk
from tenure.store.nodes import is_heard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.ids import LaneId
    from tenure.store.tx import Tx

__all__ = ["OLDEST_DUE", "Backlog", "Gauges", "read_gauges"]

OLDEST_DUE: Final = "SELECT min(f.due_at) FROM ({}) f".format(
    " UNION ALL ".join(
        "SELECT * FROM (SELECT w.due_at FROM work w WHERE w.lane = b.lane AND"
        f" w.phase = 'due' AND w.priority = {priority} ORDER BY w.due_at LIMIT 1) p"
        for priority in range(4)
    )
)
"""The due instant of the oldest due row of the lane `b.lane`, by four probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Due rows of the lanes of one kind in one state; `rows` is counted to a bound."""

    kind: str
    state: str
    rows: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """One look at the database."""

    backlogs: tuple[Backlog, ...]
    lanes: int
    claimed: int
    overdue_seconds: float
    nodes: tuple[tuple[str, int], ...]


def read_gauges(tx: Tx, places: Places) -> Gauges:
    """Look once; `places` remembers where the walk goes on the next time."""
    walked = walk(tx, places, GAUGE_LANES)
    places.passed(walked, len(walked.lanes))
    first_later = tx.scalar(
        "SELECT w.due_at FROM work w WHERE w.phase = 'later' ORDER BY w.due_at LIMIT 1"
    )
    return Gauges(
        backlogs=_backlogs(tx, walked.lanes),
        lanes=len(walked.lanes),
        claimed=tx.scalar("SELECT count(*) FROM work w WHERE w.state = 'claimed'"),
        overdue_seconds=_age(tx, first_later),
        nodes=_nodes(tx),
    )


def _backlogs(tx: Tx, lanes: Sequence[LaneId]) -> tuple[Backlog, ...]:
    if not lanes:
        return ()
    asked, params = tx.rows("b", {"lane": "bigint"}, [(lane,) for lane in lanes])
    found = tx.all(
        "SELECT l.kind, l.state, sum(x.n), min(x.oldest) FROM (SELECT b.lane,"
        " (SELECT count(*) FROM (SELECT 1 FROM work w WHERE w.lane = b.lane"
        "  AND w.phase = 'due' LIMIT :most) c) AS n,"
        f" ({OLDEST_DUE}) AS oldest FROM {asked}) x JOIN lane l ON l.id = x.lane"
        " GROUP BY l.kind, l.state",
        {**params, "most": GAUGE_ROWS},
    )
    return tuple(
        Backlog(kind=kind, state=state, rows=int(rows), oldest_seconds=_age(tx, oldest))
        for kind, state, rows, oldest in found
    )


def _age(tx: Tx, instant: int | None) -> float:
    return 0.0 if instant is None else max(0.0, (tx.now - instant) / US)


def _nodes(tx: Tx) -> tuple[tuple[str, int], ...]:
    counts = {"open": 0, "draining": 0, "silent": 0}
    for state, beat_at in tx.all(
        "SELECT n.state, n.beat_at FROM node n WHERE n.state <> 'closed'"
    ):
        counts[state if is_heard(beat_at, tx.now) else "silent"] += 1
    return tuple(counts.items())
