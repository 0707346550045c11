"""The claim: exclusive rights to try rows, for one node, in one transaction.

Theory. (1) Candidate lanes are read without a lock. (2) Only lanes with a fleet limit
are locked, by id, passing over those that another claim holds. (3) In a *new* statement,
hence with a new snapshot, live claims are counted, room is computed and rows are taken.
Steps 2 and 3 must be apart: counted in the locking statement's own snapshot, a claim that
committed between snapshot and lock is not seen, and a limit of three runs five. Lanes
without fleet limits are never locked: taking rows with SKIP LOCKED is exclusive enough.

A claimed row's number is raised in the same statement that takes it, so there is no
moment at which two nodes hold the same number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tenure.ids import LaneId, NodeId
from tenure.kernel.lanes import room, starts
from tenure.kernel.states import Work
from tenure.limits import (
    LIMITED_LANES_FACTOR,
    PROMOTE_ROWS,
    RATE_AHEAD_SECONDS,
)
from tenure.store.claims.rows import as_work, work_columns
from tenure.store.claims.views import LaneView, is_open, lock_lanes, read_lanes
from tenure.store.claims.walking import (
    GROUPS_PER_STEP,
    Circle,
    Places,
    Walked,
    due_groups,
    groups_sql,
    walk,
)

if TYPE_CHECKING:
    from tenure.store.tx import Tx

RATE_AHEAD_US: Final = round(RATE_AHEAD_SECONDS * 1_000_000)

_NEXT_DUE = (
    "SELECT w.due_at FROM work w WHERE w.phase = 'later' ORDER BY w.due_at LIMIT 1"
)
_LOOK = f"""
SELECT (SELECT n.state FROM node n WHERE n.id = :node), ({_NEXT_DUE}),
  ARRAY({groups_sql("CAST(:low AS bigint)", "CAST(9223372036854775807 AS bigint)")}),
  ARRAY({groups_sql("CAST(0 AS bigint)", "CAST(:low AS bigint)")})
"""
_PROMOTE_POSTGRESQL = f"""
UPDATE work SET phase = 'due' WHERE id = ANY(ARRAY(
  SELECT w.id FROM work w WHERE w.phase = 'later' AND w.due_at <= :now
  ORDER BY w.due_at LIMIT {PROMOTE_ROWS} FOR NO KEY UPDATE SKIP LOCKED))
"""
_PROMOTE_SQLITE = f"""
UPDATE work SET phase = 'due' WHERE id IN (
  SELECT w.id FROM work w INDEXED BY ix_work_later
  WHERE w.phase = 'later' AND w.due_at <= :now ORDER BY w.due_at LIMIT {PROMOTE_ROWS})
"""
_TAKE_POSTGRESQL = """
WITH pick AS MATERIALIZED (
  SELECT p.id, b.deadline FROM {asked} CROSS JOIN LATERAL (
    SELECT w.id FROM work w WHERE w.lane = b.lane AND w.phase = 'due'
    ORDER BY w.priority, w.due_at LIMIT b.room FOR NO KEY UPDATE SKIP LOCKED) p
  LIMIT :want)
UPDATE work w SET state = 'claimed', phase = NULL, claim = w.claim + 1,
  claimed_by = :node, claimed_at = :now, deadline_at = pick.deadline, alone = false
FROM pick WHERE w.id = pick.id RETURNING {columns}
"""
_PICK_SQLITE = (
    "SELECT w.id FROM work w INDEXED BY ix_work_due WHERE w.lane = :lane"
    " AND w.phase = 'due' ORDER BY w.priority, w.due_at LIMIT :room"
)
_TAKE_SQLITE = """
UPDATE work SET state = 'claimed', phase = NULL, claim = claim + 1,
  claimed_by = :node, claimed_at = :now, deadline_at = b.deadline, alone = 0
FROM {asked} WHERE work.id = b.id RETURNING {columns}
"""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A row that this node may try now, and what it needs to know of its lane.

    `start_at` (µs) may lie up to a second ahead, for rate limited lanes; `number` is the
    attempt's number, from 1; `deadline_us` is the whole budget from the claim on.
    """

    work: Work
    lane_subject: str
    lane_version: int
    deadline_us: int
    start_at: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """What one claim got, and whether going on at once is worth it.

    `hit_bound`: the walk stopped at its bound with places free. `next_due_at`: the
    earliest instant at which a later row is due, as known now. `node`: the state of the
    node that asked, None when its row is gone; only an open one is given anything.
    """

    claimed: Sequence[Claimed]
    hit_bound: bool
    next_due_at: int | None
    node: str | None = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The node's state, the next later row's instant, and the groups with due rows."""

    node: str | None
    next_due_at: int | None
    groups: list[int]
    wrapped: bool


@dataclass(slots=True, kw_only=True)
class Walker:
    """One node's claims. It remembers places between calls; they are hints only.

    `serves` names what this node can run: lanes that need something else are walked
    past and their rows stay untouched.
    """

    node: NodeId
    serves: frozenset[str]
    places: Places = field(default_factory=Places)
    circle: Circle = field(default_factory=Circle)

    def claim(
        self,
        tx: Tx,
        want: int,
        *,
        busy: Mapping[LaneId, int],
        lane_max: int,
        skip: Collection[LaneId] = (),
    ) -> ClaimResult:
        """Promote rows that came due, then take up to `want` rows.

        `busy` counts this node's running attempts by lane, at most `lane_max` each;
        lanes in `skip` start nothing (the node's own slow lanes). Two statements when
        nothing is due, the transaction's own first one included.
        """
        look = self._look(tx)
        come_due = look.next_due_at is not None and look.next_due_at <= tx.now
        if come_due and look.node == "open":
            promote(tx)
            look = self._look(tx)
        if want <= 0 or look.node != "open" or not look.groups:
            return ClaimResult(
                claimed=[],
                hit_bound=False,
                next_due_at=look.next_due_at,
                node=look.node,
            )
        walked = walk(tx, self.places, groups=(look.groups, look.wrapped))
        views = self._candidates(tx, walked, skip)
        rooms = {
            view.id: lane_max - busy.get(view.id, 0)
            for view in views
            if busy.get(view.id, 0) < lane_max
        }
        usable = [view for view in views if view.id in rooms]
        taken = take(tx, self.node, usable, rooms, want)
        offered = len(walked.lanes)
        if taken.offered < len(usable):
            offered = walked.lanes.index(usable[taken.offered].id)
        more = walked.more or offered < len(walked.lanes)
        if taken.claimed or offered < len(walked.lanes):
            self.circle.reset()
        elif more and self.circle.closed(self.places, walked):
            self.circle.reset()
            more = False
        self.places.passed(walked, offered)
        return ClaimResult(
            claimed=taken.claimed,
            hit_bound=more and len(taken.claimed) < want,
            next_due_at=look.next_due_at,
        )

    def _look(self, tx: Tx) -> _Look:
        """Read in one statement what decides whether there is anything to do."""
        if tx.dialect == "postgresql":
            low = self.places.low_group()
            row = tx.first(
                _LOOK, {"node": self.node, "low": low, "bound": GROUPS_PER_STEP}
            )
            assert row is not None
            first, rest = row[2], row[3]
            wrapped = len(first) < GROUPS_PER_STEP
            return _Look(
                node=row[0],
                next_due_at=row[1],
                groups=(first + rest if wrapped else first)[:GROUPS_PER_STEP],
                wrapped=wrapped,
            )
        node = tx.scalar("SELECT state FROM node WHERE id = :node", {"node": self.node})
        groups, wrapped = due_groups(tx, self.places)
        return _Look(
            node=node, next_due_at=_next_due(tx), groups=groups, wrapped=wrapped
        )

    def _candidates(
        self, tx: Tx, walked: Walked, skip: Collection[LaneId]
    ) -> list[LaneView]:
        views = walked.views
        if views is None:
            views = read_lanes(tx, walked.lanes)
        return [
            view
            for lane in walked.lanes
            if (view := views.get(lane)) is not None
            and lane not in skip
            and view.needs in self.serves
            and is_open(view, tx.now)
        ]


def promote(tx: Tx) -> int | None:
    """Turn later rows that came due into due ones; return the next due instant.

    At most 500 rows at a time: when more have come due, the instant returned lies in
    the past, so that the caller goes on at once.
    """
    next_due_at = _next_due(tx)
    if next_due_at is None or next_due_at > tx.now:
        return next_due_at
    text = _PROMOTE_POSTGRESQL if tx.dialect == "postgresql" else _PROMOTE_SQLITE
    tx.run(text, {"now": tx.now})
    return _next_due(tx)


def _next_due(tx: Tx) -> int | None:
    found = tx.first(_NEXT_DUE)
    return None if found is None else found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was taken, and how many of the lanes, in order, had their chance."""

    claimed: Sequence[Claimed]
    offered: int


def take(
    tx: Tx,
    node: NodeId,
    lanes: Sequence[LaneView],
    rooms: Mapping[LaneId, int],
    want: int,
) -> Taken:
    """Take up to `want` rows from these lanes, each within its room and its limits.

    The rows of one claim are spread over the lanes first; what is left goes to those
    that have more.
    """
    tried, left_out = _tried(tx, lanes, want)
    locked = lock_lanes(tx, tried) if tried else {}
    live = _live(tx, list(locked)) if locked else {}
    usable: list[LaneView] = []
    allowed: dict[LaneId, int] = {}
    for view in lanes:
        now_view = locked.get(view.id) if view.limits.any else view
        if now_view is None or not is_open(now_view, tx.now):
            continue
        by_fleet = room(now_view.limits, live.get(view.id, 0), tx.now, RATE_AHEAD_US)
        mine = rooms[view.id] if by_fleet is None else min(rooms[view.id], by_fleet)
        if mine > 0:
            usable.append(now_view)
            allowed[view.id] = mine
    taken = _take_spread(tx, node, usable, allowed, want) if usable else []
    at = {view.id: index for index, view in enumerate(lanes)}
    offered = at[left_out] if left_out is not None else len(lanes)
    if len(taken) >= want:
        offered = min(offered, 1 + max(at[work.lane] for work in taken))
    return Taken(claimed=_start(tx, usable, taken), offered=offered)


def _tried(
    tx: Tx, lanes: Sequence[LaneView], want: int
) -> tuple[list[LaneId], LaneId | None]:
    """Choose which limited lanes to lock; say which one is the first left out.

    When there are more than a claim may lock, those that seem to have no room are
    passed over by an unlocked look, so that they cannot stand before the others.
    """
    limited = [view for view in lanes if view.limits.any]
    most = want * LIMITED_LANES_FACTOR
    if len(limited) <= most:
        return [view.id for view in limited], None
    live = _live(tx, [view.id for view in limited])
    free = [
        view.id
        for view in limited
        if room(view.limits, live[view.id], tx.now, RATE_AHEAD_US) != 0
    ]
    return free[:most], free[most] if len(free) > most else None


def _take_spread(
    tx: Tx,
    node: NodeId,
    lanes: Sequence[LaneView],
    allowed: dict[LaneId, int],
    want: int,
) -> list[Work]:
    even = max(1, -(-want // len(lanes)))
    first = {view.id: min(allowed[view.id], even) for view in lanes}
    taken = _take_rows(tx, node, lanes, first, want)
    counts: dict[LaneId, int] = {}
    for work in taken:
        counts[work.lane] = counts.get(work.lane, 0) + 1
    more = {
        view.id: left
        for view in lanes
        if counts.get(view.id, 0) == first[view.id]
        and (left := allowed[view.id] - first[view.id]) > 0
    }
    if len(taken) < want and more:
        rest = [view for view in lanes if view.id in more]
        taken += _take_rows(tx, node, rest, more, want - len(taken))
    return taken


def _take_rows(
    tx: Tx,
    node: NodeId,
    lanes: Sequence[LaneView],
    rooms: Mapping[LaneId, int],
    want: int,
) -> list[Work]:
    def deadline(view: LaneView) -> int:
        ahead = RATE_AHEAD_US if view.limits.rate_per_second is not None else 0
        return tx.now + ahead + view.deadline_us

    fixed = {"node": node, "now": tx.now}
    if tx.dialect == "postgresql":
        asked, params = tx.rows(
            "b",
            {"lane": "bigint", "room": "bigint", "deadline": "bigint"},
            [(view.id, rooms[view.id], deadline(view)) for view in lanes],
        )
        text = _TAKE_POSTGRESQL.format(asked=asked, columns=work_columns("w"))
        found = tx.all(text, {**params, **fixed, "want": want})
    else:
        picked: list[tuple[str, int]] = []
        for view in lanes:
            left = min(rooms[view.id], want - len(picked))
            if left <= 0:
                break
            ids = tx.all(_PICK_SQLITE, {"lane": view.id, "room": left})
            picked += [(row[0], deadline(view)) for row in ids]
        if not picked:
            return []
        asked, params = tx.rows("b", {"id": "text", "deadline": "bigint"}, picked)
        text = _TAKE_SQLITE.format(asked=asked, columns=work_columns("work"))
        found = tx.all(text, {**params, **fixed})
    order = {view.id: at for at, view in enumerate(lanes)}
    works = [as_work(row) for row in found]
    works.sort(key=lambda w: (order[w.lane], w.priority, w.due_at or 0, w.id))
    return works


def _live(tx: Tx, lanes: Sequence[LaneId]) -> dict[LaneId, int]:
    """Count live claims; its own statement, so its snapshot is newer than the locks."""
    asked, params = tx.rows("b", {"lane": "bigint"}, [(lane,) for lane in lanes])
    found = tx.all(
        "SELECT b.lane, (SELECT count(*) FROM work w WHERE w.state = 'claimed'"
        f" AND w.lane = b.lane) FROM {asked}",
        params,
    )
    return {row[0]: row[1] for row in found}


def _start(tx: Tx, lanes: Sequence[LaneView], taken: Sequence[Work]) -> list[Claimed]:
    """Give each taken row its start, and move the rate limits on."""
    views = {view.id: view for view in lanes}
    by_lane: dict[LaneId, list[Work]] = {}
    for work in taken:
        by_lane.setdefault(work.lane, []).append(work)
    tats: list[tuple[LaneId, int]] = []
    claimed: list[Claimed] = []
    for lane, works in by_lane.items():
        view = views[lane]
        instants, tat = starts(view.limits, len(works), tx.now)
        if view.limits.rate_per_second is not None:
            tats.append((lane, cast("int", tat)))
        claimed += [
            Claimed(
                work=work,
                lane_subject=view.subject,
                lane_version=view.version,
                deadline_us=view.deadline_us,
                start_at=at,
                number=work.number,
            )
            for work, at in zip(works, instants, strict=True)
        ]
    if tats:
        given, params = tx.rows("b", {"lane": "bigint", "tat": "bigint"}, sorted(tats))
        tx.run(
            f"UPDATE lane SET tat = b.tat FROM {given} WHERE lane.id = b.lane", params
        )
    return claimed
