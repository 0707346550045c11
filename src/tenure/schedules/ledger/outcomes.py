"""What a settled run changes: its row, its window, its job's counters, in that commit.

The facts come from the work's own row as the settle wrote it. What an attempt said of
itself (degraded, skipped, timed out) only chooses the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.kernel.commands import Succeeded
from tenure.kernel.states import State
from tenure.schedules import tables
from tenure.schedules.model import Outcome
from tenure.store import claims
from tenure.store.claims import Insert, Over, perform
from tenure.store.tx import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.ids import WorkId
    from tenure.store.claims import Effect, Settled
    from tenure.store.tx import Tx

__all__ = ["START", "Said", "cancel", "effects", "end", "evidence", "mend"]

_ENDED: Final[Mapping[str, ColumnType]] = {
    "run": "text",
    "state": "text",
    "reason": "text",
    "at": "bigint",
}
_COUNTED: Final = (
    "succeeded",
    "degraded",
    "failed",
    "timed_out",
    "cancelled",
    "skipped",
)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt said of itself: an outcome, and the lines that it logged.

    `outcome` is an `Outcome`, or "snoozed". `error` is a traceback's last part.
    """

    run: str
    outcome: str
    reason: str | None
    error: str | None
    logs: tuple[str, ...]
    dropped: int


def evidence(items: Sequence[Settled]) -> Sequence[Effect]:
    """Keep what each attempt said, keyed by (work, claim)."""
    rows = [
        (
            item.settlement.work,
            item.settlement.claim,
            said.run,
            said.outcome,
            said.reason,
            None if said.error is None else said.error.encode(),
            "\n".join(said.logs).encode() if said.logs else None,
            said.dropped,
        )
        for item in items
        if isinstance(said := item.settlement.evidence, Said)
    ]
    if not rows:
        return ()
    names = ("work", "claim", "run", "outcome", "reason", "error", "logs", "dropped")
    return (Insert(table=tables.job_attempt, names=names, rows=rows, ignore=True),)


def effects(items: Sequence[Settled]) -> Sequence[Effect]:
    """Write down runs that are over; those that go on change nothing."""
    ended = [
        (item.before.subject, word, reason, item.after.settled_at)
        for item in items
        if item.after is not None and (found := _word(item)) is not None
        for word, reason in (found,)
    ]
    return ended_by(ended)


def ended_by(ended: Sequence[tuple[Any, ...]]) -> Sequence[Effect]:
    """Return what writes runs down: (run, state, reason, instant) each.

    A run that is written down already is left out by every statement, so what comes
    twice counts once; the run's own row is therefore the last of them.
    """
    if not ended:
        return ()
    records = sorted(ended, key=lambda row: row[0])
    return tuple(Over(stmt=text, columns=_ENDED, records=records) for text in _WRITES)


def end(tx: Tx, ended: Sequence[tuple[Any, ...]]) -> None:
    """Write down runs that ended without a settlement of their node."""
    perform(tx, ended_by(ended))


def cancel(tx: Tx, works: Mapping[WorkId, str], why: str) -> None:
    """Cancel runs by their work: what waits ends now, what goes on when it hears."""
    changed = claims.cancel(tx, list(works), why)
    end(
        tx,
        [
            (works[id_], str(Outcome.CANCELLED), why, work.settled_at)
            for id_, work in changed.items()
            if work.settled_at is not None
        ],
    )


def _word(item: Settled) -> tuple[str, str | None] | None:
    """Return how a run ended and why; None while it goes on."""
    after, said = item.after, item.settlement.evidence
    assert after is not None, "only rows that changed have an effect"
    outcome = said.outcome if isinstance(said, Said) else None
    reason = (said.reason if isinstance(said, Said) else None) or after.reason
    match after.state:
        case State.SUCCEEDED:
            fits = {Outcome.DEGRADED, Outcome.SKIPPED}
            succeeded = isinstance(item.settlement.result, Succeeded)
            word = outcome if succeeded and outcome in fits else Outcome.SUCCEEDED
        case State.DEAD:
            word = Outcome.TIMED_OUT if outcome == Outcome.TIMED_OUT else Outcome.FAILED
        case State.CANCELLED:
            word = Outcome.CANCELLED
        case State.PARKED:
            word = Outcome.PARKED
        case State.READY | State.CLAIMED:
            return None
    return str(word), reason


_GOOD: Final = "('succeeded', 'degraded', 'skipped')"
_BAD: Final = "('failed', 'timed_out', 'parked')"
_NEWEST_FIRST: Final = "(PARTITION BY r.job ORDER BY b.at DESC, b.run DESC)"
_COUNTERS: Final = f"""
UPDATE job_counter SET
  {", ".join(f"{name} = {name} + s.n_{name}" for name in _COUNTED)},
  failing = CASE WHEN s.n_good > 0 THEN 0 ELSE failing END + s.n_bad,
  last_outcome = s.last_outcome, last_ended_at = s.last_at
FROM (SELECT t.job AS job,
  {", ".join(f"sum(CASE WHEN t.state = '{n}' THEN 1 ELSE 0 END) AS n_{n}" for n in _COUNTED)},
  sum(t.good) AS n_good,
  sum(CASE WHEN t.state IN {_BAD} AND t.good_since = 0 THEN 1 ELSE 0 END) AS n_bad,
  max(CASE WHEN t.place = 1 THEN t.state END) AS last_outcome, max(t.at) AS last_at
  FROM (SELECT r.job AS job, b.state AS state, b.at AS at,
    CASE WHEN b.state IN {_GOOD} THEN 1 ELSE 0 END AS good,
    row_number() OVER {_NEWEST_FIRST} AS place,
    sum(CASE WHEN b.state IN {_GOOD} THEN 1 ELSE 0 END) OVER {_NEWEST_FIRST} AS good_since
    FROM {{b}} JOIN job_run r ON r.id = b.run WHERE r.state = 'open') AS t
  GROUP BY t.job) AS s
WHERE job_counter.job = s.job
"""
_WINDOWS: Final = """
UPDATE job_window SET state = s.state, reason = s.reason, settled_at = s.at
FROM (SELECT r.job AS job, r.window_at AS window_at, r.mark AS mark, b.run AS run,
  b.state AS state, b.reason AS reason, b.at AS at FROM {b} JOIN job_run r ON r.id = b.run
  WHERE r.window_at IS NOT NULL) AS s
WHERE job_window.job = s.job AND job_window.at = s.window_at AND job_window.mark = s.mark
AND job_window.run = s.run AND job_window.state <> 'succeeded'
"""
_REMINDERS: Final = """
UPDATE job_reminder SET state = s.state, settled_at = s.at
FROM (SELECT r.job AS job, r.scope AS scope, r.record AS record, b.state AS state,
  b.at AS at FROM {b} JOIN job_run r ON r.id = b.run WHERE r.scope IS NOT NULL) AS s
WHERE job_reminder.job = s.job AND job_reminder.scope = s.scope
AND job_reminder.record = s.record AND job_reminder.state <> 'succeeded'
"""
_RUNS: Final = """
UPDATE job_run SET state = b.state, reason = b.reason, ended_at = b.at
FROM {b} WHERE job_run.id = b.run AND job_run.state <> 'succeeded'
"""
_WRITES: Final = (_COUNTERS, _WINDOWS, _REMINDERS, _RUNS)
"""Counters first: they count runs that are open still."""

_OPEN: Final = (
    "SELECT r.job, r.id, w.state, w.reason, w.settled_at FROM job_run r"
    " LEFT JOIN work w ON w.id = r.work WHERE r.state = 'open'"
    " AND (r.job, r.id) > (:job, :run) ORDER BY r.job, r.id LIMIT :limit"
)
_OVER: Final = frozenset({"dead", "cancelled", "parked", "succeeded"})
START: Final = ("", "")
"""Where a pass over open runs begins."""
_MEANT: Final = {"dead": "failed"}


def mend(
    tx: Tx, place: tuple[str, str] = START, *, limit: int = 500
) -> tuple[int, tuple[str, str]]:
    """Write down runs whose work was ended by somebody else than its node.

    A cancelled claim that was lost, a quarantined row, an operator's cancel: the kernel
    knows no kind there. Looks at so many open runs from `place` on, however many there
    are; returns how many were over, and where to go on.
    """
    job, run = place
    found = tx.all(_OPEN, {"job": job, "run": run, "limit": limit})
    over = [row for row in found if row.state in _OVER]
    end(
        tx,
        [
            (row.id, _MEANT.get(row.state, row.state), row.reason, row.settled_at)
            for row in sorted(over, key=lambda row: row.id)
        ],
    )
    last = (found[-1].job, found[-1].id) if len(found) == limit else START
    return len(over), last
