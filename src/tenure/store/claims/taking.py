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
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tenure.ids import LaneId, NodeId
from tenure.kernel.lanes import Limits, room, starts
from tenure.kernel.states import Work
from tenure.limits import (
    LIMITED_LANES_FACTOR,
    PROMOTE_ROWS,
    RATE_AHEAD_SECONDS,
)
from tenure.store.claims.rows import as_work, work_columns
from tenure.store.claims.walking import Places, walk

if TYPE_CHECKING:
    from tenure.store.tx import Tx

RATE_AHEAD_US: Final = round(RATE_AHEAD_SECONDS * 1_000_000)

_LANE_COLUMNS: Final = (
    "l.id, l.subject, l.version, l.deadline_us, l.concurrency, l.rate_per_second,"
    " l.tat, l.half_open, l.state, l.needs, l.breaker_until"
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """A lane as a claim reads it."""

    id: LaneId
    subject: str
    version: int
    deadline_us: int
    limits: Limits
    state: str
    needs: str
    breaker_until: int | None


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
    earliest instant at which a later row is due, as known now.
    """

    claimed: Sequence[Claimed]
    hit_bound: bool
    next_due_at: int | None


@dataclass(slots=True, kw_only=True)
class Walker:
    """One node's claims. It remembers places between calls; they are hints only.

    `serves` names what this node can run: lanes that need something else are walked
    past and their rows stay untouched.
    """

    node: NodeId
    serves: frozenset[str]
    places: Places = field(default_factory=Places)

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
        lanes in `skip` start nothing (the node's own slow lanes).
        """
        next_due_at = promote(tx)
        if want <= 0:
            return ClaimResult(claimed=(), hit_bound=False, next_due_at=next_due_at)
        walked = walk(tx, self.places)
        views = self._candidates(tx, walked.lanes, skip)
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
        self.places.passed(walked, offered)
        more = walked.more or offered < len(walked.lanes)
        return ClaimResult(
            claimed=taken.claimed,
            hit_bound=more and len(taken.claimed) < want,
            next_due_at=next_due_at,
        )

    def _candidates(
        self, tx: Tx, lanes: Sequence[LaneId], skip: Collection[LaneId]
    ) -> list[LaneView]:
        views = read_lanes(tx, lanes)
        return [
            view
            for lane in lanes
            if (view := views.get(lane)) is not None
            and lane not in skip
            and view.needs in self.serves
            and is_open(view, tx.now)
        ]


def is_open(view: LaneView, now: int) -> bool:
    """Whether a lane lets anything start."""
    closed_by_breaker = view.breaker_until is not None and view.breaker_until > now
    return view.state == "open" and not closed_by_breaker


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
    found = tx.first(
        "SELECT w.due_at FROM work w WHERE w.phase = 'later' ORDER BY w.due_at LIMIT 1"
    )
    return None if found is None else found[0]


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
        f"SELECT {_LANE_COLUMNS} FROM {asked} JOIN lane l ON l.id = b.id"
        f" ORDER BY l.id{lock}",
        params,
    )
    return {row[0]: _as_view(row) for row in found}


def _as_view(row: Sequence[Any]) -> LaneView:
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
    )


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
