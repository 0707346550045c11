"""Checks of what depends on time: nodes that are gone, and work that nothing moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenure.doctor import healing
from tenure.doctor.model import About, Check, Grade, Scope, Suspect
from tenure.limits import (
    BEAT_SECONDS,
    DEAD_AFTER_SECONDS,
    DOCTOR_LANES_MAX,
    DOCTOR_LATE_SECONDS,
    DOCTOR_SUSPECTS_MAX,
    HEARD_SECONDS,
    RATE_AHEAD_SECONDS,
    SHORT_DEADLINE_SECONDS,
)
from tenure.store.claims import CERTAIN
from tenure.store.claims.walking import Places, walk
from tenure.work.filelock import LockState, probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.store.tx import Tx

__all__ = ["CHECKS"]

SWEEPS: Final = 3
"""Beats in which somebody must have swept what a closed node held."""
STALLED_BEATS: Final = 3


def _able(tx: Tx, about: About) -> dict[str, int]:
    """Return what open nodes that are heard serve, and since when the oldest does."""
    found = tx.all(
        "SELECT n.serves, n.started_at FROM node n WHERE n.state = 'open'"
        " AND n.beat_at >= :heard",
        {"heard": tx.now - about.scaled_us(HEARD_SECONDS)},
    )
    since: dict[str, int] = {}
    for serves, started_at in found:
        for need in serves.split():
            since[need] = min(started_at, since.get(need, started_at))
    return since


def _held_by_closed(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Claims that a sweep must have taken by now."""
    del scope
    graced = tx.now - SWEEPS * about.scaled_us(BEAT_SECONDS)
    short = about.scaled_us(SHORT_DEADLINE_SECONDS + RATE_AHEAD_SECONDS)
    found = tx.all(
        "SELECT w.id, w.claimed_by, n.closed_why, n.closed_at"
        " FROM work w JOIN node n ON n.id = w.claimed_by"
        " WHERE w.state = 'claimed' AND n.state = 'closed' AND n.closed_at < :graced"
        " AND (n.closed_why = :certain OR w.deadline_at < :graced"
        "  OR w.deadline_at - w.claimed_at > :short) LIMIT :most",
        {
            "graced": graced,
            "certain": CERTAIN,
            "short": short,
            "most": DOCTOR_SUSPECTS_MAX,
        },
    )
    there = any(since < graced for since in _able(tx, about).values())
    return [
        Suspect(
            key=(id_,),
            what=f"held by node {node}, closed ({why})"
            + ("" if there else "; no open node is there to take it back"),
            grade=None if there else Grade.ATTENTION,
        )
        for id_, node, why, _ in found
    ]


def _silent(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Open nodes that nobody hears, for twice as long as it takes to close them."""
    del scope
    found = tx.all(
        "SELECT n.id, n.name, n.beat_at, (SELECT count(*) FROM work w"
        " WHERE w.state = 'claimed' AND w.claimed_by = n.id) FROM node n"
        " WHERE n.state <> 'closed' AND n.beat_at < :silent",
        {"silent": tx.now - 2 * about.scaled_us(DEAD_AFTER_SECONDS)},
    )
    return [
        Suspect(
            key=(id_,),
            what=f"{name} was last heard {(tx.now - beat_at) // 1_000_000} s ago and"
            f" holds {held} claims",
        )
        for id_, name, beat_at, held in found
    ]


def _stalled(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Nodes whose beats go on while their worker loop does not."""
    del scope
    found = tx.all(
        "SELECT n.id, n.name, n.beat_at - n.tick_at FROM node n"
        " WHERE n.state = 'open' AND n.beat_at >= :heard"
        " AND n.beat_at - n.tick_at > :most",
        {
            "heard": tx.now - about.scaled_us(HEARD_SECONDS),
            "most": (STALLED_BEATS + 1) * about.scaled_us(BEAT_SECONDS),
        },
    )
    return [
        Suspect(key=(id_,), what=f"the loop of {name} stood still for {us // 10**6} s")
        for id_, name, us in found
    ]


def _locks(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Open nodes of this host whose lock is free: their process is dead."""
    del scope
    if about.host is None:
        return []
    found = tx.all(
        "SELECT n.id, n.name, n.state, n.lock_path FROM node n"
        " WHERE n.host = :host AND n.lock_path IS NOT NULL AND n.state <> 'closed'",
        {"host": about.host},
    )
    return [
        Suspect(
            key=(id_,),
            what=f"{name} is {state} and its process is gone: {path} is not locked",
        )
        for id_, name, state, path in found
        if probe(Path(path)) is LockState.FREE
    ]


def _overdue(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Rows whose instant passed long ago and that no claim has made due."""
    del scope
    late = tx.now - about.scaled_us(DOCTOR_LATE_SECONDS)
    able = {need for need, since in _able(tx, about).items() if since < late}
    if about.off is not None or not able:
        return []
    found = tx.all(
        "SELECT w.id, w.due_at, l.needs FROM work w JOIN lane l ON l.id = w.lane"
        " WHERE w.phase = 'later' AND w.due_at < :late"
        " ORDER BY w.due_at LIMIT :most",
        {"late": late, "most": DOCTOR_SUSPECTS_MAX},
    )
    return [
        Suspect(key=(id_,), what=f"due {(tx.now - due_at) // 10**6} s ago, still later")
        for id_, due_at, needs in found
        if needs in able
    ]


_OLDEST: Final = " UNION ALL ".join(
    "SELECT * FROM (SELECT w.due_at FROM work w WHERE w.lane = b.lane"
    f" AND w.phase = 'due' AND w.priority = {priority} ORDER BY w.due_at LIMIT 1) p"
    for priority in range(4)
)
_QUIET: Final = """
SELECT l.id, l.subject, l.needs, x.oldest, x.live, x.ended FROM (
  SELECT b.lane, (SELECT min(o.due_at) FROM ({oldest}) o) AS oldest,
    (SELECT count(*) FROM work w WHERE w.state = 'claimed' AND w.lane = b.lane) AS live,
    (SELECT a.ended_at FROM attempt a WHERE a.lane = b.lane
     ORDER BY a.id DESC LIMIT 1) AS ended
  FROM {asked}) x JOIN lane l ON l.id = x.lane
WHERE l.state = 'open' AND (l.breaker_until IS NULL OR l.breaker_until < :late)
AND coalesce(l.concurrency, 1) > 0 AND coalesce(l.rate_per_second, 1) > 0
AND x.oldest < :late AND x.live = 0 AND (x.ended IS NULL OR x.ended < :late)
"""


def _unmoved(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Open lanes with overdue rows of which nothing runs and nothing has run lately."""
    del scope
    late = tx.now - about.scaled_us(DOCTOR_LATE_SECONDS)
    able = {need for need, since in _able(tx, about).items() if since < late}
    if about.off is not None or not able:
        return []
    suspects: list[Suspect] = []
    for lanes in _due_lanes(tx):
        asked, params = tx.rows("b", {"lane": "bigint"}, [(lane,) for lane in lanes])
        found = tx.all(
            _QUIET.format(oldest=_OLDEST, asked=asked), {**params, "late": late}
        )
        suspects += [
            Suspect(
                key=(lane,),
                what=f"{subject}: its oldest row is due since"
                f" {(tx.now - oldest) // 10**6} s and nothing of it runs",
            )
            for lane, subject, needs, oldest, _, _ in found
            if needs in able
        ]
    return suspects[:DOCTOR_SUSPECTS_MAX]


def _due_lanes(tx: Tx) -> list[Sequence[int]]:
    """Return the lanes that have due rows, in steps, as many as one look may take."""
    steps: list[Sequence[int]] = []
    places, seen = Places(), set[int]()
    while len(seen) < DOCTOR_LANES_MAX:
        walked = walk(tx, places)
        fresh = [lane for lane in walked.lanes if lane not in seen]
        if not fresh:
            break
        steps.append(fresh)
        seen.update(fresh)
        if not walked.more:
            break
        places.passed(walked, len(walked.lanes))
    return steps


CHECKS: Final = (
    Check(
        code="node.claims",
        invariant="a closed node holds no claims for long",
        todo="`tenure doctor --heal` takes them back; so does any node that starts",
        find=_held_by_closed,
        heal=healing.lose_claims,
    ),
    Check(
        code="node.silent",
        invariant="an open node is heard",
        todo="start a node, which closes it; or `tenure nodes close NODE`",
        find=_silent,
        grade=Grade.ATTENTION,
    ),
    Check(
        code="node.lock",
        invariant="an open node's lock file is held by its process",
        todo="`tenure doctor --heal` closes such a node and takes back what it held, as"
        " its peers do",
        find=_locks,
        grade=Grade.ATTENTION,
        heal=healing.close_dead,
    ),
    Check(
        code="node.stalled",
        invariant="a node's worker loop moves while its beats go on",
        todo="restart that process: what it holds is taken back after its deadlines",
        find=_stalled,
        grade=Grade.ATTENTION,
    ),
    Check(
        code="work.overdue",
        invariant="a row whose instant has come is due",
        todo="`tenure doctor --heal` makes it due, as every claim does",
        find=_overdue,
        heal=healing.promote,
    ),
    Check(
        code="lane.unmoved",
        invariant="nothing waits without a reason",
        todo="`tenure nodes list` and `/health/ready` say whether a node is full or"
        " cannot claim; `tenure explain` says it of one row",
        find=_unmoved,
        grade=Grade.ATTENTION,
    ),
)
