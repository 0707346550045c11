"""Checks of work rows, their evidence, and the queues of ordered lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.doctor import healing
from tenure.doctor.model import About, Check, Grade, Scope, Suspect, Table
from tenure.doctor.pages import sql_check
from tenure.kernel.invariants import broken
from tenure.store.claims.rows import as_work, work_columns

if TYPE_CHECKING:
    from tenure.store.tx import Tx

__all__ = ["CHECKS"]

WORK: Final = Table(name="work", alias="w", keys=(("id", "text"),))
ATTEMPT: Final = Table(
    name="attempt", alias="a", keys=(("work", "text"), ("claim", "bigint"))
)
LINE: Final = Table(
    name="order_line",
    alias="o",
    keys=(("lane", "bigint"), ("order_key", "text"), ("sequence", "bigint")),
)

DEFECT: Final = (
    "a defect of Tenure or a hand-written UPDATE: keep the database as it is and report"
    " `tenure explain` of this row"
)


def _rows(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Ask the kernel's own predicates of every row in scope."""
    del about
    found = tx.all(
        f"SELECT {work_columns('w')} FROM work w WHERE {scope.where}", scope.params
    )
    return [
        Suspect(
            key=(row[0],),
            invariant=name,
            what=f"state {row[5]}, phase {row[6]}, claim {row[9]} of node {row[10]}",
        )
        for row in found
        for name in broken(as_work(row))
    ]


_FRONT: Final = (
    "NOT EXISTS (SELECT 1 FROM order_line b WHERE b.lane = o.lane"
    " AND b.order_key = o.order_key AND b.sequence < o.sequence)"
)

CHECKS: Final = (
    Check(
        code="work.row",
        invariant="every row is one that the kernel can have written",
        todo=DEFECT,
        find=_rows,
        table=WORK,
    ),
    sql_check(
        "work.evidence",
        WORK,
        "every claim that was not released has its attempt, a running one not yet",
        """
        SELECT * FROM (
          SELECT w.id, w.claim - w.releases AS claims,
            CASE WHEN w.state = 'claimed' THEN 1 ELSE 0 END AS running,
            (SELECT count(*) FROM attempt a WHERE a.work = w.id) AS attempts
          FROM work w WHERE {scope}) x
        WHERE x.claims - x.running <> x.attempts
        """,
        what="{0} claims, {1} running, {2} attempts",
        todo=DEFECT,
    ),
    sql_check(
        "work.holder",
        WORK,
        "a claimed row's holder is known",
        """
        SELECT w.id, w.claimed_by FROM work w WHERE {scope}
        AND w.state = 'claimed'
        AND NOT EXISTS (SELECT 1 FROM node n WHERE n.id = w.claimed_by)
        """,
        what="claimed by node {0}, which has no row",
        todo="`tenure doctor --heal` takes the claim back, as the sweep would",
        heal=healing.lose_claims,
    ),
    sql_check(
        "work.lane",
        WORK,
        "a row's lane exists",
        """
        SELECT w.id, w.lane FROM work w WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM lane l WHERE l.id = w.lane)
        """,
        what="lane {0} has no row, so nothing ever claims this",
        todo=DEFECT,
    ),
    sql_check(
        "work.asleep",
        WORK,
        "an asleep row of an ordered lane stands in its line",
        """
        SELECT w.id, w.lane FROM work w WHERE {scope}
        AND w.phase = 'asleep' AND w.order_key IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM order_line o WHERE o.lane = w.lane
          AND o.order_key = w.order_key AND o.sequence = w.sequence
          AND o.work = w.id)
        """,
        what="sleeps in lane {0} and nobody will wake it",
        todo="`tenure doctor --heal` makes it due",
        heal=healing.wake_stranded,
    ),
    sql_check(
        "attempt.claim",
        ATTEMPT,
        "no attempt is newer than its row's claim",
        """
        SELECT a.work, a.claim, w.claim FROM attempt a JOIN work w ON w.id = a.work
        WHERE {scope} AND a.claim > w.claim
        """,
        what="the row's newest claim is {0}",
        todo=DEFECT,
    ),
    sql_check(
        "attempt.work",
        ATTEMPT,
        "an attempt's work row exists",
        """
        SELECT a.work, a.claim, a.lane FROM attempt a WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM work w WHERE w.id = a.work)
        """,
        what="an attempt in lane {0} of a row that is gone",
        todo=DEFECT,
    ),
    sql_check(
        "attempt.late",
        ATTEMPT,
        "a lost claim's late success is never wasted",
        """
        SELECT a.work, a.claim, w.state FROM attempt a JOIN work w ON w.id = a.work
        WHERE {scope} AND a.late_outcome = 'succeeded' AND a.kind = 'delivery'
        AND a.claim > w.replay_claim AND (w.state IN ('ready', 'dead', 'parked')
          OR (w.state = 'claimed' AND w.claim > a.claim
              AND coalesce(w.success_claim, 0) < a.claim))
        """,
        what="it succeeded late, and the row is {0}",
        todo=DEFECT,
    ),
    sql_check(
        "order.work",
        LINE,
        "who stands in a line is a row of that line",
        """
        SELECT o.lane, o.order_key, o.sequence, o.work FROM order_line o
        LEFT JOIN work w ON w.id = o.work WHERE {scope}
        AND (w.id IS NULL OR w.lane <> o.lane OR w.order_key <> o.order_key
             OR w.sequence <> o.sequence)
        """,
        what="{0} stands there, and is missing or of another line",
        todo="`tenure doctor --heal` takes out of the line what is missing",
        heal=healing.mend_lines,
    ),
    sql_check(
        "order.counter",
        LINE,
        "a line's counter is ahead of everybody in it",
        """
        SELECT o.lane, o.order_key, o.sequence, h.next_sequence FROM order_line o
        LEFT JOIN order_head h ON h.lane = o.lane AND h.order_key = o.order_key
        WHERE {scope} AND (h.lane IS NULL OR h.next_sequence <= o.sequence)
        """,
        what="the next sequence of its line is {0}",
        todo=DEFECT,
    ),
    sql_check(
        "order.front",
        LINE,
        "the front of a line is awake",
        f"""
        SELECT o.lane, o.order_key, o.sequence, o.work FROM order_line o
        JOIN work w ON w.id = o.work WHERE {{scope}}
        AND w.phase = 'asleep' AND w.claim = 0 AND {_FRONT}
        """,
        what="{0} is in front and sleeps",
        todo="`tenure doctor --heal` wakes it",
        heal=healing.mend_lines,
    ),
    sql_check(
        "order.passed",
        LINE,
        "what has ended is not in line any more",
        """
        SELECT o.lane, o.order_key, o.sequence, o.work, w.state FROM order_line o
        JOIN work w ON w.id = o.work WHERE {scope}
        AND w.state IN ('succeeded', 'cancelled')
        """,
        what="{0} is {1} and still stands in line",
        todo="`tenure doctor --heal` takes it out and wakes the next",
        heal=healing.mend_lines,
    ),
    sql_check(
        "order.turn",
        LINE,
        "who is not in front of a line sleeps",
        f"""
        SELECT o.lane, o.order_key, o.sequence, o.work, w.state, w.phase
        FROM order_line o JOIN work w ON w.id = o.work WHERE {{scope}}
        AND NOT (w.state = 'ready' AND w.phase = 'asleep')
        AND w.state NOT IN ('succeeded', 'cancelled') AND NOT {_FRONT}
        """,
        what="{0} is {1} ({2}) before its turn",
        todo=DEFECT,
    ),
    sql_check(
        "order.blocked",
        LINE,
        "no line stands still behind a row that waits for an operator",
        f"""
        SELECT o.lane, o.order_key, o.sequence, o.work, w.state, w.reason
        FROM order_line o JOIN work w ON w.id = o.work WHERE {{scope}}
        AND w.state IN ('dead', 'parked') AND {_FRONT}
        AND EXISTS (SELECT 1 FROM order_line b WHERE b.lane = o.lane
          AND b.order_key = o.order_key AND b.sequence > o.sequence)
        """,
        what="{0} is {1} ({2}) and those behind it wait",
        todo="resend its message, or cancel it, so that the next may go",
        grade=Grade.ATTENTION,
    ),
)
