"""The walk: which lanes have rows due now, fairly, at a cost that does not grow.

Theory. There is no "next due" table: both forms of one lose half of the throughput, and
the cheap form loses wake-ups. The index of due rows is walked instead, by skip scans:
from group to group (a group is an application), and inside each group from lane to lane,
from places remembered between calls. A step visits at most 256 lanes, so the cost does
not depend on how many lanes exist, and a group with ten thousand busy lanes cannot hide
a group with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tenure.ids import LaneId
from tenure.limits import LANE_GROUP_BITS, WALK_LANES, WALK_PLACES_MAX
from tenure.store.claims.views import LANE_COLUMNS, LaneView, as_view

if TYPE_CHECKING:
    from tenure.store.tx import Tx

GROUPS_PER_STEP: Final = 32


def groups_sql(low: str, high: str) -> str:
    """Return the skip scan over at most `:bound` groups that have due rows.

    `low` and `high` are SQL: the lane ids to look at, low ≤ lane < high.
    """
    after = f"((g.lane >> {LANE_GROUP_BITS}) + 1) << {LANE_GROUP_BITS}"
    return f"""
WITH RECURSIVE g(lane, n) AS (
  (SELECT w.lane, 1 FROM work w WHERE w.phase = 'due' AND w.lane >= {low}
   AND w.lane < {high} ORDER BY w.lane LIMIT 1)
  UNION ALL
  SELECT (SELECT w.lane FROM work w WHERE w.phase = 'due' AND w.lane >= {after}
          AND w.lane < {high} ORDER BY w.lane LIMIT 1), g.n + 1
  FROM g WHERE g.lane IS NOT NULL AND g.n < :bound)
SELECT g.lane >> {LANE_GROUP_BITS} FROM g WHERE g.lane IS NOT NULL"""


_GROUPS = groups_sql(":low", ":high")
_LANES = f"""
SELECT b.low, x.lane, {LANE_COLUMNS} FROM {{asked}} CROSS JOIN LATERAL (
  WITH RECURSIVE s(lane, n) AS (
    (SELECT w.lane, 1 FROM work w WHERE w.phase = 'due'
     AND w.lane >= b.low AND w.lane < b.high ORDER BY w.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT w.lane FROM work w WHERE w.phase = 'due'
            AND w.lane > s.lane AND w.lane < b.high ORDER BY w.lane LIMIT 1), s.n + 1
    FROM s WHERE s.lane IS NOT NULL AND s.n < b.bound)
  SELECT s.lane FROM s WHERE s.lane IS NOT NULL) x LEFT JOIN lane l ON l.id = x.lane
"""

_NEXT_LANE = (
    "SELECT w.lane FROM work w INDEXED BY ix_work_due WHERE w.phase = 'due'"
    " AND w.lane >= :low AND w.lane < :high ORDER BY w.lane LIMIT 1"
)

TOP: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of one group's lane ids to walk: low ≤ lane < high, at most `bound`."""

    low: int
    high: int
    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """Lanes with due rows, one from each group in turn; `more` if there are others.

    `ends` and `group` are the places from which to go on when all of them were offered:
    a group's is None when all of its lanes are among them.
    """

    lanes: Sequence[LaneId]
    more: bool
    ends: Mapping[int, int | None]
    group: int
    views: Mapping[LaneId, LaneView] | None = None
    """The lanes themselves where the walk read them on its way; None where not."""


@dataclass(slots=True, kw_only=True)
class Places:
    """From where the next walk goes on, in the groups and in each group; hints only.

    A place moves past lanes that were *offered*, not past lanes that were only seen:
    a node with one free slot would else serve every 256th lane for ever.
    """

    group: int = 0
    lanes: dict[int, int] = field(default_factory=dict[int, int])

    def low(self, group: int) -> int:
        """Return the lane id from which to walk on in a group."""
        return self.lanes.get(group, group << LANE_GROUP_BITS)

    def low_group(self) -> int:
        """Return the lane id from which to look for groups."""
        return self.group << LANE_GROUP_BITS

    def passed(self, walked: Walked, offered: int) -> None:
        """Go on after the first `offered` of the walked lanes."""
        if len(self.lanes) > WALK_PLACES_MAX:
            self.lanes.clear()
        if offered < len(walked.lanes):
            for lane in walked.lanes[:offered]:
                self.lanes[lane >> LANE_GROUP_BITS] = lane + 1
            self.group = walked.lanes[offered] >> LANE_GROUP_BITS
            return
        for group, place in walked.ends.items():
            if place is None:
                self.lanes.pop(group, None)
            else:
                self.lanes[group] = place
        self.group = walked.group


@dataclass(slots=True, kw_only=True)
class Circle:
    """Notices when walks that gave nothing have been around all due lanes once.

    Without it, lanes that are closed with more backlog than a step visits would keep a
    node walking for ever. In each group the first fruitless step leaves its place; the
    group is done when a later one has wrapped around to it, or held all of its lanes.
    """

    begun: dict[int, int] = field(default_factory=dict[int, int])
    wrapped: set[int] = field(default_factory=set[int])
    done: set[int] = field(default_factory=set[int])
    around: bool = False

    def reset(self) -> None:
        """Begin anew: a walk was fruitful, so what was passed may have changed."""
        self.begun.clear()
        self.wrapped.clear()
        self.done.clear()
        self.around = False

    def closed(self, places: Places, walked: Walked) -> bool:
        """Count a fruitless step, before its places pass; True when it was the last."""
        by_group: dict[int, list[LaneId]] = {}
        for lane in walked.lanes:
            by_group.setdefault(lane >> LANE_GROUP_BITS, []).append(lane)
        fresh = by_group.keys() - self.begun.keys()
        if len(self.begun) + len(fresh) > WALK_PLACES_MAX:
            self.reset()
        for group, lanes in by_group.items():
            self._pass(
                group, places.low(group), lanes, whole=walked.ends[group] is None
            )
        self.around = self.around or walked.group == 0
        return self.around and not fresh and self.done >= self.begun.keys()

    def _pass(self, group: int, low: int, lanes: list[LaneId], *, whole: bool) -> None:
        begun = self.begun.setdefault(group, low)
        behind = [lane for lane in lanes if lane < low]  # the walk has turned around
        if behind:
            self.wrapped.add(group)
        reached = (behind or lanes)[-1] + 1
        if whole or (group in self.wrapped and reached >= begun):
            self.done.add(group)


def walk(
    tx: Tx,
    places: Places,
    lanes_max: int = WALK_LANES,
    *,
    groups: tuple[Sequence[int], bool] | None = None,
) -> Walked:
    """Visit up to `lanes_max` lanes that have due rows, going on from `places`.

    The places stay as they are: whoever has offered the lanes says so by `passed`.
    `groups` is what `due_groups` says, where it is known already.
    """
    found_groups, wrapped = groups or due_groups(tx, places)
    if not found_groups:
        return Walked(lanes=(), more=False, ends={}, group=0)
    share = max(1, lanes_max // len(found_groups))
    spans = [
        Span(low=places.low(group), high=(group + 1) << LANE_GROUP_BITS, bound=share)
        for group in found_groups
    ]
    views: dict[LaneId, LaneView] = {}
    found = _due_lanes(tx, spans, views)
    around = {
        span: Span(
            low=group << LANE_GROUP_BITS, high=span.low, bound=share - len(found[span])
        )
        for group, span in zip(found_groups, spans, strict=True)
        if len(found[span]) < share and span.low > group << LANE_GROUP_BITS
    }
    again = _due_lanes(tx, list(around.values()), views) if around else {}
    by_group: list[list[LaneId]] = []
    ends: dict[int, int | None] = {}
    for group, span in zip(found_groups, spans, strict=True):
        lanes = [*found[span], *(again[around[span]] if span in around else ())]
        by_group.append(lanes)
        ends[group] = lanes[-1] + 1 if len(lanes) >= share else None
    full = any(end is not None for end in ends.values())
    return Walked(
        lanes=_in_turn(by_group),
        more=full or not wrapped,
        ends=ends,
        group=0 if wrapped else found_groups[-1] + 1,
        views=views if tx.dialect == "postgresql" else None,
    )


def due_groups(tx: Tx, places: Places) -> tuple[list[int], bool]:
    """Return groups with due rows from the remembered place on, around once."""
    first = _groups_between(tx, places.low_group(), TOP, GROUPS_PER_STEP)
    if len(first) == GROUPS_PER_STEP:
        return first, False
    if places.group == 0:
        return first, True
    left = GROUPS_PER_STEP - len(first)
    rest = _groups_between(tx, 0, places.low_group(), left)
    return first + rest, True


def _groups_between(tx: Tx, low: int, high: int, bound: int) -> list[int]:
    if tx.dialect == "postgresql":
        params: Mapping[str, object] = {"low": low, "high": high, "bound": bound}
        return [row[0] for row in tx.all(_GROUPS, params)]
    groups: list[int] = []
    while len(groups) < bound:
        lane = tx.scalar(_NEXT_LANE, {"low": low, "high": high})
        if lane is None:
            break
        groups.append(lane >> LANE_GROUP_BITS)
        low = (groups[-1] + 1) << LANE_GROUP_BITS
    return groups


def _due_lanes(
    tx: Tx, spans: Sequence[Span], views: dict[LaneId, LaneView]
) -> dict[Span, list[LaneId]]:
    """Return each span's lanes; on PostgreSQL also the lanes' rows, into `views`."""
    found: dict[Span, list[LaneId]] = {span: [] for span in spans}
    if tx.dialect == "postgresql":
        asked, params = tx.rows(
            "b",
            {"low": "bigint", "high": "bigint", "bound": "bigint"},
            [(span.low, span.high, span.bound) for span in spans],
        )
        by_low = {span.low: span for span in spans}
        for low, lane, *row in tx.all(_LANES.format(asked=asked), params):
            found[by_low[low]].append(lane)
            if row[0] is not None:
                views[lane] = as_view(row)
        return found
    for span in spans:
        low = span.low
        while len(found[span]) < span.bound:
            lane = tx.scalar(_NEXT_LANE, {"low": low, "high": span.high})
            if lane is None:
                break
            found[span].append(lane)
            low = lane + 1
    return found


def _in_turn(by_group: Sequence[Sequence[LaneId]]) -> list[LaneId]:
    """Take one lane of each group in turn, so that no group stands before others."""
    longest = max(map(len, by_group), default=0)
    return [lanes[at] for at in range(longest) for lanes in by_group if at < len(lanes)]
