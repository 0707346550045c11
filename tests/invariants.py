"""What must be true of a database after any scenario, read from outside.

The kernel's own predicates on every row, and what holds between the tables: evidence
for every claim, one work row for each delivery, a reason where a message has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.kernel.invariants import broken
from tenure.store.claims.rows import as_work, work_columns

if TYPE_CHECKING:
    from tenure.store.tx import Tx

ROWS_MAX = 20_000

BETWEEN_TABLES = {
    "every claim that was not released has its attempt, a running one not yet": """
        SELECT w.id FROM work w WHERE w.claim - w.releases
        - CASE WHEN w.state = 'claimed' THEN 1 ELSE 0 END
        <> (SELECT count(*) FROM attempt a WHERE a.work = w.id)""",
    "no attempt is newer than its row's claim": """
        SELECT a.work FROM attempt a JOIN work w ON w.id = a.work
        WHERE a.claim > w.claim""",
    "a claimed row's holder is known": """
        SELECT w.id FROM work w LEFT JOIN node n ON n.id = w.claimed_by
        WHERE w.state = 'claimed' AND n.id IS NULL""",
    "an asleep row of an ordered lane stands in its line": """
        SELECT w.id FROM work w LEFT JOIN order_line o ON o.work = w.id
        WHERE w.phase = 'asleep' AND w.order_key IS NOT NULL AND o.work IS NULL""",
    "a delivery has its work row": """
        SELECT d.work FROM delivery d LEFT JOIN work w ON w.id = d.work
        WHERE w.id IS NULL""",
    "an accepted message has a delivery or the reason why none": """
        SELECT m.id FROM message m WHERE NOT EXISTS
        (SELECT 1 FROM delivery d WHERE d.message = m.id) AND NOT EXISTS
        (SELECT 1 FROM unmatched u WHERE u.message = m.id)""",
    "an accepted message has its bytes": """
        SELECT m.id FROM message m LEFT JOIN payload p ON p.message = m.id
        WHERE p.message IS NULL""",
    "what came back belongs to an attempt": """
        SELECT e.work FROM exchange e LEFT JOIN attempt a
        ON a.work = e.work AND a.claim = e.claim WHERE a.work IS NULL""",
}


def faults(tx: Tx) -> list[str]:
    """Return each invariant that does not hold, with a row that shows it."""
    found: list[str] = []
    rows = tx.all(f"SELECT {work_columns('w')} FROM work w LIMIT {ROWS_MAX}")
    for row in rows:
        found += [f"{name}: {row[0]}" for name in broken(as_work(row))]
    for name, query in BETWEEN_TABLES.items():
        found += [f"{name}: {row[0]}" for row in tx.all(f"{query} LIMIT 3")]
    return found
